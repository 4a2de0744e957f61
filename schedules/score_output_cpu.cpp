// CPU schedule of scores as an output.
//
//   parallel (batch, key/value head): key_lanes            keys side by side, once for all queries
//   parallel (batch, head, 30 queries)                     the mean: (batch, 30 queries), heads inside
//     for 4 vectors of keys
//       for 6 queries                                      24 accumulators, 4 vectors of keys, 1 broadcast of query (AVX-512)
//         for head_dim: dot += query * key_lanes
//         stage, stored along the keys, where masks lie as well; for weights the probs of a task, kept in L2
//     weights: for queries: row_sum, factor
//     weights: for queries, for keys: probs * factor
#include "schedules.h"

#include "../generators/score_output.h"

namespace polyhead::gen {

using Halide::Func;
using Halide::LoopLevel;
using Halide::RVar;
using Halide::TailStrategy;
using Halide::Var;

namespace {

// Blocks of 6 or 4 queries (`rows`) and of 4 or 2 vectors of keys share registers.
void schedule_dot(ScoreOutputStages &s, const LoopLevel &level, const ScoreOutputTile &tile, int rows, int vec) {
    Var kv_tile("kv_tile"), kv_inner("kv_inner"), q_tile("q_tile"), q_inner("q_inner"), lane("lane");
    s.of_head.compute_at(level);
    if (!s.weights) {
        s.of_head.bound_extent(s.kv, tile.keys).bound_extent(s.q, rows);
    }
    const TailStrategy whole = TailStrategy::RoundUp;
    s.of_head.split(s.kv, kv_tile, kv_inner, tile.keys, whole).split(kv_inner, kv_inner, lane, vec, whole);
    s.of_head.split(s.q, q_tile, q_inner, rows, whole);
    s.of_head.reorder(lane, kv_inner, q_inner, q_tile, kv_tile).vectorize(lane).unroll(kv_inner).unroll(q_inner);
    s.dot.compute_at(s.of_head, q_tile).bound_extent(s.kv, tile.keys).bound_extent(s.q, rows).vectorize(s.kv, vec).unroll(s.kv).unroll(s.q);
    s.dot.update().reorder(s.kv, s.q, s.rd).vectorize(s.kv, vec).unroll(s.kv).unroll(s.q);
}

// What divides the probs of a task's rows.
void schedule_sums(ScoreOutputStages &s, const LoopLevel &level, int vec) {
    s.lane_sums.compute_at(level).vectorize(s.l, vec).unroll(s.l);
    s.lane_sums.update().reorder(s.l, s.keys, s.q).vectorize(s.l, vec).unroll(s.l);
    s.row_sum.compute_at(level);
    s.row_sum.update().reorder(s.rl, s.q).atomic().vectorize(s.rl);
    s.factor.compute_at(level);
}

} // namespace

void schedule_score_output(ScoreOutputStages &s, const Tiling &tiling, const Machine &machine) {
    const ScoreOutputTile whole = score_output_tile(machine, tiling);
    const int vec = machine.lanes, rows = whole.queries / whole.query_blocks;
    Var kv_tile("kv_tile"), kv_inner("kv_inner"), q_block("q_block"), q_row("q_row"), q_tile("q_tile"), task("task");
    s.key_lanes.compute_root()
        .fuse(s.hkv, s.b, task)
        .parallel(task)
        .reorder(s.d, s.kv)
        .vectorize(s.d, std::min(vec, s.head_dim), TailStrategy::GuardWithIf);
    s.key_lanes.reorder_storage(s.kv, s.d).align_bounds(s.kv, whole.keys);
    s.query_rows.compute_root().fuse(s.h, s.b, task).parallel(task).vectorize(s.d, std::min(vec, s.head_dim), TailStrategy::GuardWithIf);
    auto tile = [&](auto stage) {
        stage.split(s.q, q_block, q_row, whole.queries, TailStrategy::GuardWithIf)
            .split(q_row, q_tile, q_row, rows, TailStrategy::GuardWithIf)
            .split(s.kv, kv_tile, kv_inner, whole.keys, TailStrategy::GuardWithIf);
        return stage;
    };
    Func result = s.result;
    LoopLevel inside(result, s.weights ? task : q_tile);
    if (s.mean) {
        tile(Halide::Stage(result)).reorder(kv_inner, kv_tile, q_row, q_tile, q_block, s.b).vectorize(kv_inner, vec);
        auto stage = tile(result.update());
        stage.reorder(kv_inner, kv_tile, q_row, q_tile, s.rh, q_block, s.b)
            .fuse(q_block, s.b, task)
            .parallel(task)
            .vectorize(kv_inner, vec);
        inside = LoopLevel(result, RVar(s.rh));
    } else {
        auto stage = tile(Halide::Stage(result));
        s.weights ? stage.reorder(kv_inner, kv_tile, q_row, q_tile, q_block, s.h, s.b)
                  : stage.reorder(kv_inner, q_row, q_tile, kv_tile, q_block, s.h, s.b);
        stage.fuse(q_block, s.h, task).fuse(task, s.b, task).parallel(task).vectorize(kv_inner, vec);
    }
    schedule_dot(s, inside, whole, rows, vec);
    if (s.weights) {
        schedule_sums(s, inside, vec);
    }
}

} // namespace polyhead::gen
