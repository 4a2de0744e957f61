// The frame "warp tiles": attention by products that the warps of a GPU make.
#include "warp_tiles.h"

#include <algorithm>

#include "../../contract/problem.h"
#include "frame.h"
#include "limits.h"
#include "linear.h"

namespace polyhead::gen {
namespace {

int shared_bytes(const Tiling &t, const Problem &p, const Product &product, int chunks) {
    return warp_tiles_bytes(t.row_groups * t.thread_rows * product.m, t.kv_tile, p.head_dim, p.head_dim_v, chunks, product.element_bytes())
        .all();
}

class WarpTiles : public Frame {
public:
    const char *name() const override { return "warp_tiles"; }
    int schedule_version() const override { return 1; }
    KnobUser knob_user() const override { return KnobUser::warp_tiles; }
    bool multiplies_by_warps() const override { return true; }

    // Query, key and value as they are stored, in rows of whole copies and of eights; what a product takes more is 0. Floats are multiplied
    // in parts where the problem allows it. Of a layer these are its heads, where its projections are products of warps, too.
    bool serves(const Problem &p, const Machine &machine) const override {
        const Product *product = product_for(p, machine);
        const bool heads = contract::by_heads(p) || (contract::is_attention_layer(p) && products_refusal(p, machine).empty());
        const bool stored = heads && p.int8_cache == 0 && p.rope == POLYHEAD_NO_ROPE && p.query_norm == POLYHEAD_NO_NORM &&
                            p.key_norm == POLYHEAD_NO_NORM && p.value_norm == 0;
        const bool only_out = p.scores == POLYHEAD_NO_SCORES && p.weights_mean == 0;
        return product && contract::computes_out(p) && stored && only_out && p.page_size % warp_tiles_page == 0 &&
               p.head_dim % warp_tiles_eight == 0 && p.head_dim_v % warp_tiles_eight == 0 &&
               std::max(p.head_dim, p.head_dim_v) <= most_head_dim;
    }
    bool wanted(const Problem &, const Machine &, bool) const override { return true; }

    // Two tiles of 16 rows of a warp: with one, loads of fragments take longer than the products. With head dims above 64 scores and acc
    // leave registers for fewer keys, and so do the parts of floats.
    void fill_defaults(Tiling *t, const Problem &p, const Machine &machine) const override {
        const Product &product = *product_for(p, machine);
        const bool wide = std::max(p.head_dim, p.head_dim_v) > 64;
        fill(t->thread_rows, 2);
        fill(t->row_groups, 4);
        fill(t->kv_tile, (wide ? 32 : 64) / product.parts());
        fill(t->load_width, warp_tiles_copied_elements(p.dtype));
        // A chunk is copied while the one before is computed, where that leaves room for enough warps.
        const int two = shared_bytes(*t, p, product, 2);
        fill(t->kv_chunks, machine.blocks_at_once(two) * t->row_groups >= enough_warps ? 2 : 1);
    }

    int few_blocks_of(const Problem &p, const Tiling &usual, const Machine &machine, Tiling *few) const override {
        few->thread_rows = 1; // as many warps
        const int rows = usual.row_groups * product_for(p, machine)->m;
        return warp_tiles_few_blocks(p, rows * usual.thread_rows, rows);
    }

    std::string refusal(const Problem &p, const Tiling &t, const Machine &machine) const override {
        const Product &product = *product_for(p, machine);
        const int64_t sums = int64_t(t.thread_rows) * (t.kv_tile + p.head_dim_v) / product.n * product.sums_of_lane();
        return first_of(
            {copies_refusal(p, t), at_most("chunks of a block (kv_chunks)", t.kv_chunks, most_chunks, "places"),
             at_most("a block's tiles", shared_bytes(t, p, product, t.kv_chunks), machine.shared_on_request(), "bytes of shared memory"),
             at_most("scores and sums of a thread (thread_rows x (kv_tile + head_dim_v) / 2)", sums, most_thread_sums, "registers")});
    }
    void add_scratch(ScratchTerms *terms) const override { terms->add_attended(); }

private:
    static constexpr int most_head_dim = 128;
    static constexpr int most_chunks = 2;  // a barrier of each chunk keeps warps together
    static constexpr int enough_warps = 8; // of a multiprocessor: as many as there are registers for
};

} // namespace

int warp_tiles_few_blocks(const Problem &p, int usual, int small) {
    return small >= usual || !contract::by_heads(p) ? 0 : p.causal != POLYHEAD_NOT_CAUSAL ? usual : small;
}

WarpTilesBytes warp_tiles_bytes(int rows, int keys, int head_dim, int head_dim_v, int chunks, int element_bytes, int barriers) {
    const auto of_row = [=](int columns) {
        return (columns * element_bytes + warp_tiles_row_bytes - 1) / warp_tiles_row_bytes * warp_tiles_row_bytes;
    };
    return {rows * of_row(head_dim), keys * of_row(head_dim), keys * of_row(head_dim_v), chunks, barriers};
}

std::string copies_refusal(const Problem &p, const Tiling &t) {
    const int elements = warp_tiles_copied_elements(p.dtype);
    return t.load_width != elements
               ? sentence("tiling: load_width is %d, expected %d, a copy of %d bytes", t.load_width, elements, warp_tiles_copy)
           : p.page_size != 0 && t.kv_tile % warp_tiles_page != 0
               ? sentence("tiling: kv_tile %d is not a multiple of %d, the rows of the smallest page", t.kv_tile, warp_tiles_page)
               : "";
}

const Frame &warp_tiles_frame() {
    static const WarpTiles frame;
    return frame;
}

} // namespace polyhead::gen
