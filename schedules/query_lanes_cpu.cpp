// CPU schedule of the frame "query lanes".
#include "query_lanes_cpu.h"

namespace polyhead::gen {

using Halide::Func;
using Halide::MemoryType;
using Halide::RVar;
using Halide::TailStrategy;
using Halide::Var;

void schedule_query_lanes(QueryLanesStages &s, const AttentionOut &o, const Machine &machine) {
    const int vec = machine.lanes;
    const int q_tile = s.blocking.q_tile;
    Var tile("tile"), q_outer("q_outer"), q_inner("q_inner");
    Func out = o.func;
    out.split(o.q, q_outer, q_inner, q_tile, TailStrategy::GuardWithIf)
        .reorder(o.d, q_inner, q_outer, o.h, o.b)
        .fuse(q_outer, o.h, tile)
        .fuse(tile, o.b, tile)
        .parallel(tile)
        .vectorize(o.d, std::min(vec, o.columns), TailStrategy::GuardWithIf);
    auto lanes = [&](Func f) { return f.vectorize(s.qi, vec).unroll(s.qi); };
    auto lanes_of_update = [&](Halide::Stage f) { return f.vectorize(s.qi, vec).unroll(s.qi); };
    s.visible.compute_at(out, tile);
    lanes(s.visible);
    s.normalised.compute_at(out, tile).bound_extent(s.qi, q_tile).bound_extent(s.qt, 1);
    lanes(s.normalised);
    lanes(s.inverse_sum.compute_at(out, tile));
    s.query_tile.compute_at(out, tile).reorder(s.d, s.qi).reorder_storage(s.qi, s.d).bound_extent(s.qi, q_tile)
        .vectorize(s.d, std::min(vec, s.head_dim), TailStrategy::GuardWithIf);

    // merge
    s.merged.compute_at(out, tile).bound(s.x, 0, s.head_dim_v + 2).bound_extent(s.qi, q_tile);
    lanes(s.merged);
    Func group_host = out;
    Halide::LoopLevel group_level(out, tile);
    if (!s.single_group) {
        s.merged.update().reorder(s.qi, s.merge_columns.x, s.merge_columns.y);
        lanes_of_update(s.merged.update().never_partition({s.merge_columns.y}));
        group_level = Halide::LoopLevel(s.merged, s.merge_columns.y);
    }
    s.group_acc.compute_at(group_level);
    lanes(s.group_acc);
    lanes_of_update(s.group_acc.update().reorder(s.qi, s.group_chunks, s.x));
    s.weight.compute_at(group_level);
    lanes(s.weight);
    s.group_reference.compute_at(group_level);
    lanes(s.group_reference);
    lanes_of_update(s.group_reference.update());
    s.partial.compute_at(group_level).bound(s.x, 0, s.head_dim_v + 2).bound_extent(s.qi, q_tile).bound(s.m, 0, s.blocking.merge_group);
    s.partial.update().reorder(s.qi, s.x, s.group_chunks, s.g, s.qt, s.h, s.b);
    lanes_of_update(s.partial.update().never_partition({s.group_chunks}));
    const RVar chunk = s.group_chunks;

    // one chunk
    Var d_outer("d_outer"), d_inner("d_inner");
    const int padded_v = (s.head_dim_v + s.blocking.value_panel - 1) / s.blocking.value_panel * s.blocking.value_panel;
    s.chunk_out.compute_at(s.partial, chunk).bound(s.d, 0, padded_v)
        .split(s.d, d_outer, d_inner, s.blocking.value_panel).reorder(s.qi, d_inner, d_outer).unroll(d_inner);
    lanes(s.chunk_out);
    s.acc.compute_at(s.chunk_out, d_outer).unroll(s.d);
    lanes(s.acc);
    for (int i = 0; i <= int(s.causal); i++) {
        const RVar keys = i == 0 ? RVar(s.whole_keys) : RVar(s.partial_keys);
        s.acc.update(i).reorder(s.qi, s.d, keys).unroll(s.d);
        lanes_of_update(s.acc.update(i));
    }
    s.row_sum.compute_at(s.partial, chunk);
    lanes(s.row_sum);
    lanes_of_update(s.row_sum.update().reorder(s.qi, s.keys));
    s.probs.compute_at(s.partial, chunk).bound_extent(s.kk, s.blocking.kv_tile).bound_extent(s.qi, q_tile);
    s.probs.update().reorder(s.qi, s.prob_blocks.x, s.prob_blocks.y);
    lanes_of_update(s.probs.update().unroll(s.prob_blocks.x, std::min(2, s.blocking.key_panel)));
    s.row_reference.compute_at(s.partial, chunk);
    lanes(s.row_reference);
    s.row_max.compute_at(s.partial, chunk);
    lanes(s.row_max);
    lanes_of_update(s.row_max.update().reorder(s.qi, s.keys));
    s.logits.compute_at(s.partial, chunk).bound_extent(s.kk, s.blocking.kv_tile).bound_extent(s.qi, q_tile);
    s.logits.update().reorder(s.qi, s.key_blocks.x, s.key_blocks.y);
    lanes_of_update(s.logits.update().unroll(s.key_blocks.x));
    s.scores.compute_at(s.logits, s.key_blocks.y).bound_extent(s.kk, s.blocking.key_panel).bound_extent(s.qi, q_tile).unroll(s.kk);
    lanes(s.scores);
    s.scores.update().reorder(s.qi, s.kk, s.rd).unroll(s.kk);
    lanes_of_update(s.scores.update());
}

} // namespace polyhead::gen
