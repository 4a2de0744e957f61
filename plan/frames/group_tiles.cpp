// The frame "group tiles": attention by products that four warps of a GPU make together.
#include <algorithm>

#include "frame.h"
#include "limits.h"
#include "warp_tiles.h"

namespace polyhead::gen {

const Frame &warp_tiles_frame();

namespace {

class GroupTiles : public Frame {
public:
    const char *name() const override { return "group_tiles"; }
    int schedule_version() const override { return 2; }
    KnobUser knob_user() const override { return KnobUser::warp_tiles; }
    bool multiplies_by_warps() const override { return true; }
    bool of_one_capability() const override { return true; }

    // What products of a warp serve, too: sums of rows are made by them.
    bool serves(const Problem &p, const Machine &machine) const override {
        return machine.group_product(p.dtype) && warp_tiles_frame().serves(p, machine);
    }
    bool wanted(const Problem &, const Machine &, bool) const override { return true; }

    void fill_defaults(Tiling *t, const Problem &p, const Machine &) const override {
        fill(t->thread_rows, 1);
        fill(t->row_groups, 8);
        fill(t->kv_tile, 128);
        fill(t->kv_chunks, chunks);
        fill(t->load_width, warp_tiles_copied_elements(p.dtype));
    }

    int few_blocks_of(const Problem &p, const Tiling &usual, const Machine &machine, Tiling *few) const override {
        const Product &product = *machine.group_product(p.dtype);
        few->row_groups = product.holders() / machine.warp();
        return warp_tiles_few_blocks(p, usual.row_groups / few->row_groups * product.m, product.m);
    }

    std::string refusal(const Problem &p, const Tiling &t, const Machine &machine) const override {
        const Product &product = *machine.group_product(p.dtype);
        const int group = product.holders() / machine.warp();
        if (t.row_groups % group != 0 || t.thread_rows != 1 || t.kv_chunks != chunks) {
            return sentence(
                "tiling: group_tiles has thread_rows 1, kv_chunks %d and a row_groups that is a multiple of %d, found %d, %d and %d",
                chunks, group, t.thread_rows, t.kv_chunks, t.row_groups);
        }
        const int rows = t.row_groups / group * product.m;
        const int64_t registers =
            int64_t(t.kv_tile + p.head_dim_v) / product.n * product.sums_of_lane() + int64_t(t.kv_tile) / product.k * product.words_of_a();
        return first_of(
            {copies_refusal(p, t),
             at_most("a block's tiles",
                     warp_tiles_bytes(rows, t.kv_tile, p.head_dim, p.head_dim_v, t.kv_chunks, product.element_bytes(), group_tiles_barriers)
                         .all(),
                     machine.shared_on_request(), "bytes of shared memory"),
             at_most("scores, probs and sums of a thread (kv_tile x 3/4 + head_dim_v / 2)", registers, most_registers, "registers")});
    }
    void add_scratch(ScratchTerms *terms) const override { terms->add_attended(); }

private:
    // Keys come two chunks ahead, and products of other groups may still read the chunk before this one.
    static constexpr int chunks = 3;
    static constexpr int most_registers = 200; // of 255: the others are references, addresses and what is computed
};

} // namespace

const Frame &group_tiles_frame() {
    static const GroupTiles frame;
    return frame;
}

} // namespace polyhead::gen
