// GPU schedules of the frames "thread rows" and "block tiles".
#include "schedules.h"

#include <algorithm>

#include "../generators/frames/rows.h"

namespace polyhead::gen {

using Halide::Func;
using Halide::LoopLevel;
using Halide::MemoryType;
using Halide::RVar;
using Halide::TailStrategy;
using Halide::Var;

namespace {

constexpr int merge_columns = 32; // of a row that one block merges at most: a warp of threads reads as many neighbours

// Blocks over (tile, h, b), with splits (tile and split, h, b); threads over (lane, group). What a thread writes is unrolled.
struct Levels {
    LoopLevel thread, block; // the innermost loops over threads, and over blocks
};

Levels schedule_written(Func out, const RowsStages &s, const Var &h, const Var &b) {
    const Halide::RDom &w = s.written;
    const RVar tile = w[4], block("block");
    // Writes nothing, but would count as use on the host: memory of a device alone would be refused.
    out.gpu_blocks(out.args().back());
    // Every element has one place; Halide need not prove it.
    Halide::Stage update = out.update().allow_race_conditions();
    if (s.blocking.splits()) {
        update.fuse(tile, w[5], block);
    }
    const RVar blocks = s.blocking.splits() ? block : tile;
    update.reorder(w[0], w[1], w[2], w[3], blocks, h, b)
        .unroll(w[0])
        .unroll(w[1])
        .gpu_threads(w[2], w[3])
        .gpu_blocks(blocks, h, b)
        .never_partition_all(); // blocks at the edges of causal would get a copy of the whole kernel
    return {LoopLevel(out, RVar(w[2])), LoopLevel(out, blocks)};
}

// Conditions on loops make bounds inference see intervals where there is one value.
void one_point(Func f, const std::vector<Var> &vars) {
    for (const Var &v : vars) {
        f.bound_extent(v, 1);
    }
}

void schedule_columns(RowsStages &s, const LoopLevel &level) {
    s.acc.compute_at(level).bound(s.x, 0, s.stat_columns + s.value_entries).bound_extent(s.r, s.blocking.rows);
    one_point(s.acc, {s.qt, s.sp, s.h, s.b});
    if (!s.blocking.block_tiles) {
        one_point(s.acc, {s.l, s.g});
    }
}

// A lane's entries of some keys or values, as wide as they may be loaded. Single ones are loaded where they are used: hundreds of
// arrays of their own are more nested scopes than compilers of OpenCL C take (Clang: 256).
void load_rows(Func f, const RowsStages &s, const ChunkStages &chunk, const LoopLevel &level, int width) {
    if (width == 1) {
        return;
    }
    f.compute_at(level).store_in(MemoryType::Stack).bound_extent(s.x, width).bound(s.kk, 0, chunk.kv_tile).unroll(s.kk).vectorize(s.x);
    one_point(f, {s.c, s.l, s.g, s.qt, s.sp, s.h, s.b});
}

void schedule_thread_chunk(RowsStages &s, int update, int width) {
    ChunkStages &chunk = s.chunks[size_t(update)];
    const int rows = s.blocking.rows;
    const RVar column_piece("column_piece"), column("column"), entry_piece("entry_piece"), entry("entry");
    auto stage = s.acc.update(update);
    stage.split(chunk.domain.x, column_piece, column, width).reorder(s.r, column, column_piece, chunk.domain.y);
    stage.unroll(s.r).unroll(column).unroll(column_piece).never_partition_all();
    const LoopLevel level(s.acc, chunk.domain.y);
    for (Func f : {chunk.dot, chunk.logits, chunk.row_max, chunk.row_reference, chunk.probs, chunk.row_sum}) {
        f.compute_at(level).bound_extent(s.r, rows).store_in(MemoryType::Stack).unroll(s.r);
        one_point(f, {s.c, s.l, s.g, s.qt, s.sp, s.h, s.b});
    }
    for (Func f : {chunk.dot, chunk.logits, chunk.probs}) {
        f.bound(s.kk, 0, chunk.kv_tile).unroll(s.kk);
    }
    chunk.dot.update().split(chunk.rd, entry_piece, entry, width).reorder(s.r, entry, s.kk, entry_piece);
    chunk.dot.update().unroll(s.r).unroll(entry).unroll(s.kk).unroll(entry_piece);
    load_rows(chunk.key_rows, s, chunk, LoopLevel(chunk.dot, entry_piece), width);
    load_rows(chunk.value_rows, s, chunk, LoopLevel(s.acc, column_piece), width);
    for (Func f : {chunk.row_max, chunk.row_sum}) {
        f.update().reorder(s.r, chunk.keys).unroll(s.r).unroll(chunk.keys);
    }
}

void schedule_thread_rows(RowsStages &s, const LoopLevel &thread, int load_width) {
    const int rows = s.blocking.rows;
    for (Func f : s.row_bounds.funcs()) {
        f.compute_at(thread).bound_extent(s.r, rows).unroll(s.r);
        one_point(f, {s.g, s.qt, s.b});
    }
    one_point(s.query_rows, {s.l, s.g, s.qt, s.h, s.b});
    s.query_rows.compute_at(thread).bound(s.x, 0, s.query_entries).bound_extent(s.r, rows).unroll(s.x).unroll(s.r);
    schedule_columns(s, thread);
    s.acc.store_in(MemoryType::Stack).unroll(s.x).unroll(s.r);
    // Of masked chunks only with splits, where loads are what a pass waits for, and if there are no others: beside whole chunks they are
    // few.
    const bool of_masked = s.blocking.splits() && s.chunks.size() == 1;
    for (int i = 0; i < int(s.chunks.size()); i++) {
        schedule_thread_chunk(s, i, s.whole_pieces && (!s.chunks[size_t(i)].masked || of_masked) ? load_width : 1);
    }
}

// A Func of a tile in shared memory. Its first two dimensions are divided over the threads; each has so many adjacent elements.
void spread(Func f, const Var &inner, const Var &outer, int inner_per_thread, int outer_per_thread) {
    Var inner_thread("inner_thread"), outer_thread("outer_thread"), i("i"), j("j");
    f.split(inner, inner_thread, i, inner_per_thread, TailStrategy::RoundUp)
        .split(outer, outer_thread, j, outer_per_thread, TailStrategy::RoundUp)
        .reorder(i, j, inner_thread, outer_thread)
        .unroll(i)
        .unroll(j)
        .gpu_threads(inner_thread, outer_thread);
}

// A chunk of key or value. Loads go along head_dim, so that neighbouring threads read neighbouring floats; one float more per key keeps
// threads that read different keys off the same memory bank.
void stage_chunk(Func f, const RowsStages &s, const LoopLevel &level, int width) {
    const RowsBlocking &k = s.blocking;
    Var d_outer("d_outer"), d_thread("d_thread"), kk_outer("kk_outer"), kk_thread("kk_thread");
    f.compute_at(level).bound(s.d, 0, width).bound(s.kk, 0, k.kv_tile).bound_storage(s.d, width + 1);
    f.split(s.d, d_outer, d_thread, k.lanes, TailStrategy::GuardWithIf)
        .split(s.kk, kk_outer, kk_thread, std::min(k.groups, k.kv_tile), TailStrategy::GuardWithIf)
        .reorder(d_outer, kk_outer, d_thread, kk_thread)
        .gpu_threads(d_thread, kk_thread);
}

// One number per row of the tile.
void schedule_statistic(Func f, const RowsStages &s, const ChunkStages &chunk, const LoopLevel &level) {
    const int tile = s.blocking.rows * s.blocking.groups, width = std::min(tile, s.blocking.lanes);
    Var outer("outer"), inner("inner");
    f.compute_at(level).bound_extent(s.qi, tile).split(s.qi, outer, inner, width).gpu_threads(inner, outer);
    if (f.has_update_definition()) {
        f.update().split(s.qi, outer, inner, width).reorder(chunk.keys, inner, outer).gpu_threads(inner, outer);
    }
}

void schedule_block_tiles(RowsStages &s, const LoopLevel &block) {
    const RowsBlocking &k = s.blocking;
    ChunkStages &chunk = s.chunks[0];
    const int tile = k.rows * k.groups, keys_per_thread = std::max(1, k.kv_tile / k.lanes);
    schedule_columns(s, block);
    s.acc.bound_extent(s.l, k.lanes).bound_extent(s.g, k.groups).reorder(s.x, s.r, s.l, s.g).unroll(s.r).gpu_threads(s.l, s.g);
    s.acc.update().reorder(s.r, chunk.domain.x, s.l, s.g, chunk.domain.y).unroll(s.r).unroll(chunk.domain.x).gpu_threads(s.l, s.g);
    s.acc.update().never_partition_all();
    const LoopLevel level(s.acc, chunk.domain.y), thread(s.acc, s.l);
    stage_chunk(chunk.key_chunk, s, level, s.head_dim);
    std::vector<Func> shared = {chunk.key_chunk};
    if (chunk.value_chunk.defined()) {
        stage_chunk(chunk.value_chunk, s, level, s.head_dim_v);
        shared.push_back(chunk.value_chunk);
    }
    for (Func f : {chunk.logits, chunk.probs}) {
        f.compute_at(level).bound(s.kk, 0, k.kv_tile).bound_extent(s.qi, tile).bound_storage(s.kk, k.kv_tile + 1);
        spread(f, s.kk, s.qi, keys_per_thread, k.rows);
    }
    for (Func f : {chunk.row_max, chunk.row_reference, chunk.row_sum}) {
        schedule_statistic(f, s, chunk, level);
    }
    // Inside the loop over chunks: Halide 21 would give memory that is filled before the loop, and last read before the end of its body,
    // to something else in that body (seen: wrong from the second chunk on). acc is safe, it is written at the very end.
    for (Func f : s.row_bounds.funcs()) {
        f.compute_at(level).store_in(MemoryType::GPUShared).bound_extent(s.r, k.rows).bound_extent(s.g, k.groups).gpu_threads(s.r, s.g);
        one_point(f, {s.qt, s.b});
    }
    shared.insert(shared.end(), {chunk.logits, chunk.probs, chunk.row_max, chunk.row_reference, chunk.row_sum});
    for (Func f : shared) {
        f.store_in(MemoryType::GPUShared);
    }
    s.acc.store_in(MemoryType::GPUShared);
    chunk.dot.compute_at(chunk.logits, Var("inner_thread")).bound_extent(s.kk, keys_per_thread).bound_extent(s.qi, k.rows);
    chunk.dot.unroll(s.kk).unroll(s.qi).update().reorder(s.kk, s.qi, chunk.rd).unroll(s.kk).unroll(s.qi);
    chunk.chunk_acc.compute_at(thread).bound(s.x, 0, s.value_entries).bound_extent(s.r, k.rows).unroll(s.x).unroll(s.r);
    int update = 0;
    for (const Halide::RDom *keys : chunk.value_keys.loops()) {
        chunk.chunk_acc.update(update++).reorder(s.x, s.r, RVar(*keys)).unroll(s.x).unroll(s.r);
    }
    chunk.dot.store_in(MemoryType::Stack);
    chunk.chunk_acc.store_in(MemoryType::Stack);
    one_point(chunk.chunk_acc, {s.c, s.l, s.g, s.qt, s.sp, s.h, s.b});
    shared.push_back(chunk.dot);
    for (Func f : shared) {
        one_point(f, {s.c, s.qt, s.sp, s.h, s.b});
    }
}

// What the groups of a warp have of a split is merged in registers.
void schedule_groups(RowsStages &s, const LoopLevel &thread) {
    s.merge.partial.compute_root().bound(s.merge.x, 0, s.head_dim_v + 2);
    if (!s.merge.of_groups.defined()) {
        return;
    }
    for (Func f : {s.merge.group_reference, s.merge.of_groups}) {
        f.compute_at(thread).store_in(MemoryType::Stack).bound_extent(s.r, s.blocking.rows).unroll(s.r);
        one_point(f, {s.l, s.g, s.qt, s.sp, s.h, s.b});
    }
    s.merge.of_groups.bound(s.x, 0, s.value_entries + 1).unroll(s.x);
}

// A block per row and piece of its columns; threads over (column, lane of the merge).
void schedule_merge(RowsStages &s, const AttentionOut &o) {
    MergeStages &t = s.merge;
    // A power of 2 of pieces: to divide by another constant takes 64 bits, which Vulkan does not have.
    int pieces = 1;
    while (pieces * merge_columns < o.columns) {
        pieces *= 2;
    }
    const int columns = (o.columns + pieces - 1) / pieces, lanes = s.blocking.merge_lanes;
    Var piece("piece"), column("column"), place("place");
    Func out = o.func;
    out.split(o.d, piece, column, columns, TailStrategy::GuardWithIf).fuse(piece, o.q, place);
    out.reorder(column, place, o.h, o.b).gpu_threads(column).gpu_blocks(place, o.h, o.b).never_partition_all();
    const LoopLevel block(out, place), thread(out, column);
    for (Func f : {t.lane_reference, t.lane_sum, t.lane_acc}) {
        f.compute_at(block).store_in(MemoryType::GPUShared).bound(t.m, 0, lanes);
        one_point(f, {o.q, o.h, o.b});
    }
    for (Func f : {t.lane_reference, t.lane_sum}) {
        f.gpu_threads(t.m).update().reorder(t.lane_splits, t.m).gpu_threads(t.m);
    }
    t.lane_acc.bound_extent(t.x, columns).gpu_threads(t.x, t.m);
    t.lane_acc.update().reorder(t.lane_splits, t.x, t.m).gpu_threads(t.x, t.m);
    for (Func f : {t.reference, t.row_sum, t.acc}) {
        f.compute_at(thread).store_in(MemoryType::Stack);
        f.update().unroll(t.lanes);
    }
}

} // namespace

void schedule_rows(RowsStages &s, const AttentionOut &o, int load_width) {
    const bool splits = s.blocking.splits();
    const Levels levels = splits ? schedule_written(s.merge.partial, s, s.h, s.b) : schedule_written(o.func, s, o.h, o.b);
    if (s.blocking.block_tiles) {
        schedule_block_tiles(s, levels.block);
    } else {
        schedule_thread_rows(s, levels.thread, load_width);
    }
    if (splits) {
        schedule_groups(s, levels.thread);
        schedule_merge(s, o);
    }
}

} // namespace polyhead::gen
