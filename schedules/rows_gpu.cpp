// GPU schedules of the frames "thread rows" and "block tiles".
#include "rows_gpu.h"

#include <algorithm>

namespace polyhead::gen {

using Halide::Func;
using Halide::LoopLevel;
using Halide::MemoryType;
using Halide::RVar;
using Halide::TailStrategy;
using Halide::Var;

namespace {

const char *const chunk_name = "chunk";

// Blocks over (tile, h, b), threads over (lane, group of rows); what a thread writes is unrolled. The innermost loop over threads.
LoopLevel schedule_out(Func out, const RowsStages &s, const AttentionOut &o) {
    const Halide::RDom &w = s.written;
    // Every element has one place; Halide need not prove it.
    out.update()
        .allow_race_conditions()
        .reorder(w[0], w[1], w[2], w[3], w[4], o.h, o.b)
        .unroll(w[0])
        .unroll(w[1])
        .gpu_threads(w[2], w[3])
        .gpu_blocks(w[4], o.h, o.b);
    return LoopLevel(out, RVar(w[2]));
}

// Conditions on loops make bounds inference see intervals where there is one value.
void one_point(Func f, const std::vector<Var> &vars) {
    for (const Var &v : vars) {
        f.bound_extent(v, 1);
    }
}

void schedule_columns(RowsStages &s, const LoopLevel &level) {
    s.acc.compute_at(level).bound(s.x, 0, s.stat_columns + s.value_entries).bound_extent(s.r, s.blocking.rows);
    one_point(s.acc, {s.qt, s.h, s.b});
    if (!s.blocking.staged) {
        one_point(s.acc, {s.l, s.g});
    }
}

void schedule_thread_rows(RowsStages &s, const LoopLevel &thread) {
    const int rows = s.blocking.rows;
    s.visible.compute_at(thread).bound_extent(s.r, rows).unroll(s.r);
    one_point(s.visible, {s.g, s.qt, s.b});
    one_point(s.query_rows, {s.l, s.g, s.qt, s.h, s.b});
    s.query_rows.compute_at(thread).bound(s.x, 0, s.query_entries).bound_extent(s.r, rows).unroll(s.x).unroll(s.r);
    schedule_columns(s, thread);
    s.acc.store_in(MemoryType::Stack).unroll(s.x).unroll(s.r);
    const RVar chunk(chunk_name);
    for (int i = 0; i < 2; i++) {
        const Halide::RDom &domain = i == 0 ? s.whole : s.partial;
        s.acc.update(i).rename(domain.y, chunk).reorder(s.r, domain.x, chunk).unroll(s.r).unroll(domain.x).never_partition_all();
    }
    const LoopLevel level(s.acc, chunk);
    for (Func f : {s.dot, s.logits, s.row_max, s.row_reference, s.probs, s.row_sum}) {
        f.compute_at(level).bound_extent(s.r, rows).store_in(MemoryType::Stack).unroll(s.r);
        one_point(f, {s.c, s.l, s.g, s.qt, s.h, s.b});
    }
    for (Func f : {s.dot, s.logits, s.probs}) {
        f.bound(s.kk, 0, s.blocking.kv_tile).unroll(s.kk);
    }
    s.dot.update().reorder(s.r, s.kk, s.rd).unroll(s.r).unroll(s.kk).unroll(s.rd);
    s.row_max.update().reorder(s.r, s.keys).unroll(s.r).unroll(s.keys);
    s.row_sum.update().reorder(s.r, s.keys).unroll(s.r).unroll(s.keys);
}

// A Func of a tile in shared memory, its first two dimensions spread over the threads: `per_thread` neighbours each.
void spread(Func f, const Var &inner, const Var &outer, int inner_per_thread, int outer_per_thread) {
    Var inner_thread("inner_thread"), outer_thread("outer_thread"), i("i"), j("j");
    f.store_in(MemoryType::GPUShared)
        .split(inner, inner_thread, i, inner_per_thread, TailStrategy::RoundUp)
        .split(outer, outer_thread, j, outer_per_thread, TailStrategy::RoundUp)
        .reorder(i, j, inner_thread, outer_thread)
        .unroll(i)
        .unroll(j)
        .gpu_threads(inner_thread, outer_thread);
}

void schedule_block_tiles(RowsStages &s, const LoopLevel &block) {
    const RowsBlocking &k = s.blocking;
    const int tile = k.rows * k.groups, keys_per_thread = std::max(1, k.kv_tile / k.lanes);
    const RVar chunk(chunk_name);
    schedule_columns(s, block);
    s.acc.bound_extent(s.l, k.lanes).bound_extent(s.g, k.groups).store_in(MemoryType::GPUShared);
    s.acc.reorder(s.x, s.r, s.l, s.g).unroll(s.r).gpu_threads(s.l, s.g);
    s.acc.update().rename(s.whole.y, chunk).reorder(s.r, s.whole.x, s.l, s.g, chunk).unroll(s.r).unroll(s.whole.x).gpu_threads(s.l, s.g);
    const LoopLevel level(s.acc, chunk), thread(s.acc, s.l);
    // Loads go along head_dim, so that neighbouring threads read neighbouring floats; one float more per key keeps the threads that
    // read different keys off the same memory bank.
    Var d_outer("d_outer"), d_thread("d_thread"), kk_outer("kk_outer"), kk_thread("kk_thread");
    for (Func f : {s.key_chunk, s.value_chunk}) {
        const int width = f.name() == s.key_chunk.name() ? s.head_dim : s.head_dim_v;
        f.compute_at(level).bound(s.d, 0, width).bound(s.kk, 0, k.kv_tile).store_in(MemoryType::GPUShared).bound_storage(s.d, width + 1);
        f.split(s.d, d_outer, d_thread, k.lanes, TailStrategy::GuardWithIf)
            .split(s.kk, kk_outer, kk_thread, std::min(k.groups, k.kv_tile), TailStrategy::GuardWithIf)
            .reorder(d_outer, kk_outer, d_thread, kk_thread)
            .gpu_threads(d_thread, kk_thread);
    }
    for (Func f : {s.logits, s.probs}) {
        f.compute_at(level).bound(s.kk, 0, k.kv_tile).bound_extent(s.qi, tile).bound_storage(s.kk, k.kv_tile + 1);
        spread(f, s.kk, s.qi, keys_per_thread, k.rows);
    }
    for (Func f : {s.row_max, s.row_reference, s.row_sum}) {
        Var outer("outer"), inner("inner");
        f.compute_at(level).bound_extent(s.qi, tile).store_in(MemoryType::GPUShared);
        f.split(s.qi, outer, inner, std::min(tile, k.lanes)).gpu_threads(inner, outer);
    }
    for (Func f : {s.row_max, s.row_sum}) {
        Var outer("outer"), inner("inner");
        f.update().split(s.qi, outer, inner, std::min(tile, k.lanes)).reorder(s.keys, inner, outer).gpu_threads(inner, outer);
    }
    s.dot.compute_at(s.logits, Var("inner_thread")).store_in(MemoryType::Stack).bound_extent(s.kk, keys_per_thread).bound_extent(s.qi, k.rows);
    s.dot.unroll(s.kk).unroll(s.qi).update().reorder(s.kk, s.qi, s.rd).unroll(s.kk).unroll(s.qi);
    s.chunk_acc.compute_at(thread).store_in(MemoryType::Stack).bound(s.x, 0, s.value_entries).bound_extent(s.r, k.rows);
    s.chunk_acc.unroll(s.x).unroll(s.r);
    for (int i = 0; i <= int(s.causal); i++) {
        const RVar keys = i == 0 ? RVar(s.value_keys.whole) : RVar(s.value_keys.partial);
        s.chunk_acc.update(i).reorder(s.x, s.r, keys).unroll(s.x).unroll(s.r);
    }
    one_point(s.chunk_acc, {s.c, s.l, s.g, s.qt, s.h, s.b});
    for (Func f : {s.key_chunk, s.value_chunk, s.logits, s.probs, s.row_max, s.row_reference, s.row_sum, s.dot}) {
        one_point(f, {s.c, s.qt, s.h, s.b});
    }
    // Inside the loop over chunks: Halide 21 would give memory that is filled before the loop, and last read before the end of its body,
    // to something else in that body (seen: wrong from the second chunk on). acc is safe, it is written at the very end.
    s.visible.compute_at(level).bound_extent(s.r, k.rows).bound_extent(s.g, k.groups).store_in(MemoryType::GPUShared);
    s.visible.gpu_threads(s.r, s.g);
    one_point(s.visible, {s.qt, s.b});
}

} // namespace

void schedule_rows(RowsStages &s, const AttentionOut &o) {
    const LoopLevel thread = schedule_out(o.func, s, o);
    if (s.blocking.staged) {
        schedule_block_tiles(s, LoopLevel(o.func, RVar(s.written[4])));
    } else {
        schedule_thread_rows(s, thread);
    }
}

} // namespace polyhead::gen
