// The table of frames, and what is the same for all of them: the linear layers of a problem.
#include "../../contract/problem.h"
#include "../../contract/weight_layout.h"
#include "frame.h"

#include <algorithm>

#include "../knob_rules.h"
#include "limits.h"
#include "linear.h"

namespace polyhead::gen {

// Each frame defines one of these in its own file.
const Frame &head_lanes_frame();
const Frame &query_lanes_frame();
const Frame &split_rows_frame();
const Frame &split_tiles_frame();
const Frame &warp_tiles_frame();
const Frame &group_tiles_frame();
const Frame &thread_rows_frame();
const Frame &block_tiles_frame();
const Frame &plain_frame();
const Frame &key_lanes_frame();
const Frame &linear_gradients_frame();

namespace {

class Linear : public Frame {
public:
    const char *name() const override { return "linear"; }
    int schedule_version() const override { return 1; }
    bool serves(const Problem &p, const Machine &) const override { return contract::has_weights(p) && !contract::attends(p); }
    bool wanted(const Problem &, const Machine &, bool) const override { return true; }
    // Such a call reads the weights once, from memory; with the usual tile, multiplying takes longer than that.
    int few_rows(const Machine &machine) const override {
        constexpr int rows = 4, most_vectors = 2; // of a panel; beyond that the usual tile is no larger
        return !machine.gpu() && POLYHEAD_WEIGHT_PANEL <= most_vectors * machine.lanes ? rows : 0;
    }
    int tiles_from(const Problem &) const override { return 0; }
};

void fill_linear_defaults(Tiling *t, const Problem &p, const Machine &machine) {
    if (machine.gpu()) {
        // With 4 columns adjacent threads load adjacent weights: on an H100 0.62 to 0.71 of the time with 8 columns, 4 panels and 64 rows.
        fill(t->linear_rows, 8);
        fill(t->linear_columns, 4);
        fill(t->linear_panels, 8);
    }
    // A second block reads all weights again. Time with 256 rows / with 128, AVX2: 512 x 768 -> 2304 0.94, layer of 197 rows 0.93 (AVX-512
    // 0.97). With 208 rows 512 are three blocks: 0.975 of the speed (AVX-512).
    constexpr int rows_of_task = 256;
    const int rows = std::max(1, t->linear_rows);
    fill(t->linear_block, machine.gpu() ? (32 + rows - 1) / rows * rows : rows_of_task);
    if (contract::is_backward(p)) {
        fill(t->row_block, 512); // each block meets the sums of a task once; 128 rows lie in L1 and take 1.00 to 1.06 of the time
    }
    fill(t->reduction_block, 1024); // 64 costs 4 % and makes the rounding error of a sum over 768 inputs 3 times smaller
}

// A fragment of rows serves 8 products, one of the weight 4: a warp has 64 rows and 64 columns, as many sums as fit into registers. Beside
// operands in parts it is 48 rows.
void fill_products_defaults(Tiling *t, const Problem &p, const Machine &machine) {
    const Product *product = product_for(p, machine);
    const bool parts = product && product->parts() > 1;
    fill(t->linear_rows, parts ? 6 : 8);
    fill(t->linear_columns, 16);
    fill(t->linear_panels, 8);
    fill(t->linear_block, parts ? 96 : 128);
}

// Tiles take rows and weights as they lie in memory.
std::string tiles_refusal(const Problem &p, const Tiling &t, const Machine &machine) {
    const bool pairs = machine.multiplies_pairs(p.dtype) && machine.multiplies_pairs(contract::weight_dtype(p));
    const int odd = (p.embed_dim | (contract::is_attention_layer(p) ? p.kdim | p.vdim | p.head_dim_v : 0)) & 1;
    return t.amx == 0                 ? ""
           : contract::is_backward(p) ? "tiling: amx 1 is not for gradients"
           : !pairs                   ? "tiling: amx 1 needs bf16, weights included, and a target with dot products of pairs"
           : p.cache != 0             ? "tiling: amx 1 is not for layers with a cache"
           : odd != 0                 ? "tiling: amx 1 needs an even number of inputs in every layer"
           : contract::is_attention_layer(p) && t.pair != 2 ? "tiling: amx 1 needs pair 2 in a layer of attention, whose heads it reads"
           : t.linear_rows != 0                             ? "tiling: amx 1 has no linear_rows: its tiles have 16 rows"
           : t.unscheduled != 0                             ? "tiling: amx 1 needs a schedule, found unscheduled 1"
                                                            : "";
}

std::string warps_refusal(const Problem &p, const Tiling &t, const Machine &machine) {
    const std::string refused = products_refusal(p, machine);
    const std::optional<WarpBlocking> k = warp_blocking(t, p, machine);
    if (!refused.empty() || !k) {
        return refused;
    }
    const int rows = k->row_tiles * k->product->m, columns = k->column_tiles * k->product->n;
    if (t.linear_rows % 2 != 0 || t.linear_columns % 8 != 0 || t.linear_block % rows != 0 ||
        t.linear_panels * POLYHEAD_WEIGHT_PANEL % columns != 0) {
        return sentence(
            "tiling: linear_rows %d and linear_columns %d with linear_block %d and linear_panels %d, expected an even number of "
            "rows, 8 or 16 columns, and blocks of whole warps, %d rows and %d columns",
            t.linear_rows, t.linear_columns, t.linear_block, t.linear_panels, rows, columns);
    }
    return first_of({at_most("sums (linear_rows x linear_columns)", int64_t(t.linear_rows) * t.linear_columns, most_sums, "registers"),
                     at_most("warps of a block", k->threads(), most_threads, "threads"),
                     at_most("chunks of a block", int64_t(k->chunks) * k->bytes(), machine.shared_on_request(), "bytes of shared memory")});
}

std::string linear_refusal(const Problem &p, const Tiling &t, const Machine &machine) {
    if (t.warp_products != 0) {
        return warps_refusal(p, t, machine);
    }
    if (machine.gpu()) {
        const int row_threads = std::max(1, t.linear_block / t.linear_rows);
        return first_of(
            {at_most("sums (linear_rows x linear_columns)", int64_t(t.linear_rows) * t.linear_columns, most_sums, "registers"),
             at_most("rows of linear_block (linear_block / linear_rows)", row_threads, most_threads_along_z, "threads"),
             at_most("columns of linear_panels and rows of linear_block",
                     int64_t(POLYHEAD_WEIGHT_PANEL) / t.linear_columns * t.linear_panels * row_threads, most_threads, "threads")});
    }
    const int vectors = std::max(1, POLYHEAD_WEIGHT_PANEL / machine.lanes);
    return first_of({tiles_refusal(p, t, machine),
                     at_most("sums (linear_rows x linear_panels)",
                             int64_t(std::max(1, t.linear_rows)) * std::max(1, t.linear_panels) * vectors, most_sums, "registers")});
}

} // namespace

std::string products_refusal(const Problem &p, const Machine &machine) {
    if (!product_for(p, machine) || contract::weight_dtype(p) != p.dtype || contract::is_backward(p)) {
        return "tiling: warp_products 1 needs f16 or bf16, weights included, or f32 with precision tf32x3, and a target whose warps "
               "multiply "
               "them: CUDA from capability 8.0 on";
    }
    // A head lies in rows of the context.
    const bool layer = contract::is_attention_layer(p);
    const std::pair<const char *, int> widths[] = {
        {"embed_dim", p.embed_dim}, {"kdim", layer ? p.kdim : 0}, {"vdim", layer ? p.vdim : 0}, {"head_dim_v", layer ? p.head_dim_v : 0}};
    const int copied = WarpBlocking::copy / contract::dtype_bytes(p.dtype);
    for (const auto &[name, width] : widths) {
        if (width % copied != 0) {
            return sentence("tiling: warp_products 1 needs rows of whole copies: %s is %d, expected a multiple of %d", name, width, copied);
        }
    }
    return "";
}

const std::vector<const Frame *> &frames() {
    static const Linear linear;
    static const auto *const table = new std::vector<const Frame *>{&head_lanes_frame(),  &query_lanes_frame(),      &split_rows_frame(),
                                                                    &split_tiles_frame(), &group_tiles_frame(),      &warp_tiles_frame(),
                                                                    &thread_rows_frame(), &block_tiles_frame(),      &linear,
                                                                    &key_lanes_frame(),   &linear_gradients_frame(), &plain_frame()};
    return *table;
}

const Frame *frame_named(const std::string &name) {
    const auto found = std::find_if(frames().begin(), frames().end(), [&](const Frame *frame) { return name == frame->name(); });
    return found == frames().end() ? nullptr : *found;
}

std::string frame_names() {
    std::string names;
    for (const Frame *frame : frames()) {
        if (frame->schedule_version() > 0) {
            names += std::string(names.empty() ? "" : ", ") + frame->name();
        }
    }
    return names;
}

Tiling default_tiling(const Frame &frame, const Problem &problem, const Machine &machine, Tiling t) {
    frame.fill_defaults(&t, problem, machine);
    if (contract::projects(problem)) {
        if (frame.multiplies_by_warps()) { // it reads heads as they are stored
            fill(t.warp_products, 1);
        }
        if (t.warp_products != 0) {
            fill_products_defaults(&t, problem, machine);
        }
        fill_linear_defaults(&t, problem, machine);
    }
    forget_unread(frame, problem, machine, &t);
    return t;
}

std::string tiling_refusal(const Frame &frame, const Problem &p, const Tiling &t, const Machine &machine) {
    std::string refusal = knob_refusal(frame, p, t, machine);
    if (refusal.empty()) {
        refusal = frame.refusal(p, t, machine);
    }
    return refusal.empty() && contract::projects(p) ? linear_refusal(p, t, machine) : refusal;
}

} // namespace polyhead::gen
