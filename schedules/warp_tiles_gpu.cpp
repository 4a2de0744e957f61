// GPU schedule of the frame "warp tiles".
#include "schedules.h"

#include "../generators/frames/warp_tiles.h"
#include "thread_stages.h"

namespace polyhead::gen {

using Halide::Func;
using Halide::LoopLevel;
using Halide::MemoryType;
using Halide::RVar;
using Halide::Var;

namespace {

// Fragments are loaded inside of the products that take them. Products of four warps have none.
void place_fragments(WarpChunk &chunk, const WarpTilesBlocking &blocking) {
    if (chunk.key_fragments.defined()) {
        chunk.key_fragments.compute_at(LoopLevel(chunk.scores, chunk.scores_of_pair)).store_in(MemoryType::Stack);
    }
    if (chunk.query_fragments.defined()) {
        const std::vector<Var> of_step = chunk.query_fragments.args();
        chunk.query_fragments.compute_at(LoopLevel(chunk.scores, chunk.scores_of_steps)).store_in(MemoryType::Stack);
        chunk.query_fragments.bound_extent(of_step[0], 2).bound_extent(of_step[1], blocking.tiles).unroll(of_step[0]).unroll(of_step[1]);
    }
    if (chunk.value_fragments.defined()) {
        chunk.value_fragments.compute_at(LoopLevel(chunk.acc, chunk.acc_of_load)).store_in(MemoryType::Stack);
    }
}

} // namespace

// Blocks over (tile, h, b), threads over (lane, warp). Everything is inside of the loops over threads: the loop over chunks is one of a
// thread, and barriers are calls.
void schedule_warp_tiles(WarpTilesStages &s, const AttentionOut &o) {
    const Halide::RDom &w = s.written;
    Func out = o.func;
    out.gpu_blocks(out.args().back());
    const Halide::VarOrRVar tile(w[6]), head(o.h);
    const Halide::VarOrRVar x = s.last_tile_first ? head : tile, y = s.last_tile_first ? tile : head; // blocks begin in the order of x
    out.update()
        .allow_race_conditions()
        .reorder(w[0], w[1], w[2], w[3], w[4], w[5], x, y, o.b)
        .unroll(w[0])
        .unroll(w[1])
        .unroll(w[2])
        .unroll(w[3])
        .gpu_threads(w[4], w[5])
        .gpu_blocks(x, y, o.b)
        .never_partition_all();
    const LoopLevel thread(out, RVar(w[4]));
    for (Func f : s.of_tile) {
        f.compute_at(thread).store_in(MemoryType::Stack);
    }
    for (Func f : s.row_bounds.funcs()) {
        const std::vector<Var> row = f.args();
        f.compute_at(thread)
            .store_in(MemoryType::Stack)
            .bound_extent(row[0], 2)
            .bound_extent(row[1], s.blocking.tiles)
            .unroll(row[0])
            .unroll(row[1]);
    }
    for (const ThreadStage &stage : s.before) {
        place_stage(stage, thread);
    }
    for (const ThreadStage &stage : s.after) {
        place_stage(stage, thread);
    }
    if (s.query_signed.defined()) {
        s.query_signed.compute_at(thread).store_in(MemoryType::Stack);
        s.query_signed.update().reorder(s.signed_piece, s.signed_once).never_partition_all();
    }
    s.acc.compute_at(thread).store_in(MemoryType::Stack);
    int update = 0;
    for (WarpChunk &chunk : s.chunks) {
        s.acc.update(update++).never_partition_all();
        const LoopLevel level(s.acc, RVar(chunk.domain.x));
        for (const ThreadStage &stage : chunk.stages) {
            place_stage(stage, level);
        }
        place_fragments(chunk, s.blocking);
    }
}

} // namespace polyhead::gen
