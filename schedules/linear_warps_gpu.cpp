// GPU schedule of linear layers whose products are made by warps.
//
//   blocks (panels, rows, batch)
//     threads (lane, warp)
//       rows and weights of the first chunks        to shared memory, 16 bytes at once, not waited for
//       for chunks of inputs
//         copies of a later chunk
//         products                                  unrolled, fragments loaded inside
//       out
#include "schedules.h"

#include "../generators/linear.h"
#include "thread_stages.h"

namespace polyhead::gen {

using Halide::Func;
using Halide::LoopLevel;
using Halide::MemoryType;
using Halide::RVar;
using Halide::Var;

void schedule_linear_warps(LinearWarpsStages &s, Func out, const std::vector<Var> &outer) {
    const Halide::RDom &w = s.written;
    out.gpu_blocks(out.args().back());
    auto stage = out.update().allow_race_conditions();
    stage.reorder(loops_of(w, outer)).unroll(w[1]).unroll(w[2]).unroll(w[3]).gpu_threads(w[4], w[5]);
    s.stores_pairs ? stage.vectorize(w[0]) : stage.unroll(w[0]);
    outer.empty() ? stage.gpu_blocks(w[6], w[7]) : stage.gpu_blocks(w[6], w[7], outer[0]);
    stage.never_partition_all();
    const LoopLevel thread(out, RVar(w[4]));
    for (const ThreadStage &of_thread : s.before) {
        place_stage(of_thread, thread);
    }
    s.acc.compute_at(thread).store_in(MemoryType::Stack);
    s.acc.update().never_partition_all();
    for (const ThreadStage &of_thread : s.after) {
        place_stage(of_thread, thread);
    }
    for (const ThreadStage &of_chunk : s.of_chunk) {
        place_stage(of_chunk, LoopLevel(s.acc, RVar(s.chunk.x)));
    }
    const std::vector<Var> tile = s.row_fragments.args();
    s.row_fragments.compute_at(LoopLevel(s.products, s.products_of_step)).store_in(MemoryType::Stack);
    s.row_fragments.bound_extent(tile[0], s.blocking.row_tiles).unroll(tile[0]);
    s.weight_fragments.compute_at(LoopLevel(s.products, s.products_of_load)).store_in(MemoryType::Stack);
}

} // namespace polyhead::gen
