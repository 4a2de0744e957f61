// CPU schedule of scores as an output.
//
//   parallel (batch, key/value head): key_lanes            keys side by side, once for all queries
//   parallel (batch, head, 64 queries)                     the mean: (batch, 64 queries), heads inside
//     for 4 vectors of keys
//       for 6 queries                                      24 accumulators, 4 vectors of keys, 1 broadcast of query (AVX-512)
//         for head_dim: dot += query * key_lanes
//         stage, stored along the keys, where masks lie as well
#include "score_output_cpu.h"

namespace polyhead::gen {

using Halide::Func;
using Halide::LoopLevel;
using Halide::TailStrategy;
using Halide::Var;

ScoreOutputTile score_output_tile(const Machine &machine) {
    const bool many = machine.registers == 32;
    return {many ? 60 : 40, machine.lanes * (many ? 4 : 2)};
}

void schedule_score_output(ScoreOutputStages &s, const Machine &machine) {
    const ScoreOutputTile whole = score_output_tile(machine);
    const int vec = machine.lanes, vectors = whole.keys / vec, block = whole.queries, rows = block / 10;
    Var kv_tile("kv_tile"), kv_inner("kv_inner"), q_block("q_block"), q_row("q_row"), q_tile("q_tile"), q_inner("q_inner"), task("task");
    s.key_lanes.compute_root()
        .fuse(s.hkv, s.b, task)
        .parallel(task)
        .reorder(s.d, s.kv)
        .vectorize(s.d, std::min(vec, s.head_dim), TailStrategy::GuardWithIf);
    s.key_lanes.reorder_storage(s.kv, s.d).align_bounds(s.kv, vec * vectors);
    s.query_rows.compute_root().fuse(s.h, s.b, task).parallel(task).vectorize(s.d, std::min(vec, s.head_dim), TailStrategy::GuardWithIf);
    auto tile = [&](auto stage) {
        stage.split(s.q, q_block, q_row, block, TailStrategy::GuardWithIf)
            .split(q_row, q_tile, q_inner, rows, TailStrategy::GuardWithIf)
            .split(s.kv, kv_tile, kv_inner, vec * vectors, TailStrategy::GuardWithIf);
        return stage;
    };
    Func result = s.result;
    LoopLevel inside(result, q_tile);
    if (s.mean) {
        tile(Halide::Stage(result)).reorder(kv_inner, q_inner, q_tile, kv_tile, q_block, s.b).vectorize(kv_inner, vec);
        auto stage = tile(result.update());
        stage.reorder(kv_inner, q_inner, s.rh, q_tile, kv_tile, q_block, s.b).fuse(q_block, s.b, task).parallel(task);
        stage.vectorize(kv_inner, vec);
        inside = LoopLevel(result, Halide::RVar(s.rh));
    } else {
        tile(Halide::Stage(result))
            .reorder(kv_inner, q_inner, q_tile, kv_tile, q_block, s.h, s.b)
            .fuse(q_block, s.h, task)
            .fuse(task, s.b, task)
            .parallel(task)
            .vectorize(kv_inner, vec);
    }
    s.of_head.compute_at(inside).bound_extent(s.kv, vec * vectors).bound_extent(s.q, rows).vectorize(s.kv, vec).unroll(s.kv).unroll(s.q);
    s.dot.compute_at(inside).bound_extent(s.kv, vec * vectors).bound_extent(s.q, rows).vectorize(s.kv, vec).unroll(s.kv).unroll(s.q);
    s.dot.update().reorder(s.kv, s.q, s.rd).vectorize(s.kv, vec).unroll(s.kv).unroll(s.q);
}

} // namespace polyhead::gen
