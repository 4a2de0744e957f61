// GPU schedule of the linear layer.
//
//   blocks (linear_panels panels of 16 columns, linear_block rows, batch)
//     threads (columns in linear_columns, rows in linear_rows)
//       for blocks of k
//         for k                                    one load per row, linear_columns / 4 wide loads of weight
//           block_sum += rows(k) * weight(k)       8 x 8 sums in registers: 16 floats loaded for 64 multiply-adds
//         acc += block_sum
//
// Rows and weights come through the first-level cache: the threads of a warp share 2 pieces of weight and 4 of rows. Sums of a block in
// registers and chunks in shared memory do not go together in Halide 21 (docs/internals/schedules_gpu.md).
#include "schedules.h"

#include <algorithm>

#include "../generators/layer.h"
#include "thread_stages.h"

namespace polyhead::gen {

using Halide::Func;
using Halide::MemoryType;
using Halide::RVar;
using Halide::TailStrategy;
using Halide::Var;

namespace {

// Inputs in fours share the arithmetic of addresses (one at a time 58 % of the loop are multiply-adds, so 69 %); weights in fours make 40
// loads of 64.
constexpr int inputs_together = 4, weights_of_a_load = 4;
constexpr int threads_of_a_copy = 32; // a warp

// The loop nest above, over a Func that was written in the coordinates of threads.
void schedule_threads(LinearStages &s, Func out, const std::vector<Var> &outer, const Machine &machine) {
    const Halide::RDom &w = s.written;
    const int columns = s.threads.columns, rows = s.threads.rows;
    // Writes nothing, but would count as use on the host: memory of a device alone would be refused.
    out.gpu_blocks(out.args().back());
    // Every element has one place; Halide need not prove it.
    auto stage = out.update().allow_race_conditions();
    stage.reorder(loops_of(w, outer)).unroll(w[0]).unroll(w[1]).gpu_threads(w[2], w[3], w[4]);
    outer.empty() ? stage.gpu_blocks(w[5], w[6]) : stage.gpu_blocks(w[5], w[6], outer[0]);
    for (Func f : {s.acc, s.block_sum}) {
        f.bound_extent(s.column, columns).bound_extent(s.panel, 1).bound_extent(s.m, rows).bound_extent(s.b, 1);
        f.store_in(MemoryType::Stack).unroll(s.column).unroll(s.panel).unroll(s.m);
    }
    s.acc.compute_at(out, RVar(w[2]));
    s.acc.update().reorder(s.column, s.panel, s.m, s.blocks).unroll(s.column).unroll(s.panel).unroll(s.m);
    s.block_sum.compute_at(s.acc, s.blocks).bound_extent(s.block, 1);
    RVar inputs("inputs"), input("input");
    s.block_sum.update()
        .split(s.k, inputs, input, s.inner % inputs_together == 0 ? inputs_together : 1)
        .reorder(s.column, s.panel, s.m, input, inputs);
    if (machine.wide()) {
        s.block_sum.update().vectorize(s.column, std::min(columns, weights_of_a_load));
    }
    s.block_sum.update().unroll(s.column).unroll(s.panel).unroll(s.m).unroll(input);
}

} // namespace

void schedule_linear_gpu(LinearStages &s, const LinearOut &o, const Machine &machine) {
    s.warps ? schedule_linear_warps(*s.warps, o.func, o.outer) : schedule_threads(s, o.func, o.outer, machine);
}

void schedule_projection_gpu(HeadProjection &p, const Machine &machine) {
    p.heads.compute_root();
    if (p.in_rows) {
        p.heads.reorder_storage(p.column, p.panel, p.t, p.b);
    }
    p.linear.warps ? schedule_linear_warps(*p.linear.warps, p.heads, {p.b}) : schedule_threads(p.linear, p.heads, {p.b}, machine);
}

void schedule_copy_gpu(Func func, const Var &inner, const std::vector<Var> &outer) {
    // Dimensions stay apart: taking a fused index to pieces is a division, for which Vulkan would need 64-bit integers.
    Var pieces("pieces"), thread("thread");
    std::vector<Halide::VarOrRVar> order = {pieces, thread};
    order.insert(order.end(), outer.begin(), outer.end());
    func.split(inner, pieces, thread, threads_of_a_copy, TailStrategy::GuardWithIf).reorder(order).gpu_threads(thread);
    outer.size() == 3 ? func.gpu_blocks(outer[0], outer[1], outer[2]) : func.gpu_blocks(outer[0], outer[1]);
}

} // namespace polyhead::gen
