// CPU schedule of the frame "head lanes".
//
//   parallel (batch, key/value head, split); in pages (batch, split, key/value head)
//     pages                                                 of the split, from the table
//     for tiles of rows                                     a second tile finds the split's keys in L2
//       for key_unroll keys: lane_scores, scores, logits    one load of key per row_tile multiply-adds, head_dim unrolled
//       row_max, probs, row_sum                             vectors along the keys of the split; the first values are asked for
//       for keys: acc += probs * value                      row_tile x head_dim_v/lanes accumulators
//       partial
//   parallel (batch, key/value head): merge
//
// parallel(fused, factor) would silently move every compute_at() out of the task (seen in Halide 21): tasks are single splits.
#include <utility>

#include "schedules.h"

#include "../generators/frames/head_lanes.h"

namespace polyhead::gen {

using Halide::Func;
using Halide::LoopLevel;
using Halide::RVar;
using Halide::TailStrategy;
using Halide::Var;

namespace {

// The end of a call is left to one thread up to here: a parallel loop costs some microseconds.
constexpr int most_serial_floats = 1 << 16, most_serial_lse = 1 << 12;
// Registers that are left to values, probs and addresses while columns of acc are kept in the others.
constexpr int registers_beside_acc = 8;
// Rows of a pass over values, and keys whose values stay in the L1 cache for all passes.
constexpr int rows_of_pass = 4, keys_of_block = 16;

// sum or max over the keys of a split: by lane, then over the lanes.
void reduce_keys(Func f, const HeadLanesStages &s) {
    Var lane("lane");
    Func by_lane = f.update().rfactor(s.keys.x, lane);
    by_lane.compute_at(f, s.r).bound_extent(s.r, 1).vectorize(lane).update().vectorize(lane);
    f.update().atomic().vectorize(s.keys.x);
}

// What each key of a split has, filled vector by vector by the first update.
void schedule_of_keys(Func f, const HeadLanesStages &s, int rows, const Machine &machine) {
    f.compute_at(s.partial, s.rt).bound_extent(s.kk, s.blocking.split_len).bound_extent(s.r, rows);
    f.align_storage(s.kk, s.blocking.split_len + machine.row_padding);
    f.update(0).allow_race_conditions().vectorize(s.keys.x);
}

// Sums over a block of keys, whose values stay in the L1 cache for all passes. A pass has four rows, so that a value is loaded and
// converted once for them, and every n-th vector, or one part of every word. Returns the loop over the keys of a block.
RVar schedule_block_of_values(Halide::Stage sums, const HeadLanesStages &s, const RVar &keys, const Machine &machine) {
    Var d_outer("d_outer"), d_rest("d_rest"), d_inner("d_inner"), pass("pass"), r_outer("r_outer"), r_inner("r_inner");
    RVar block("block"), in_block("in_block");
    const int lanes = s.blocking.lanes, vectors = s.value_vectors.count(), most = machine.registers - registers_beside_acc;
    const int rows = std::clamp(s.blocking.words ? 2 * most / vectors : rows_of_pass, 1, std::min(s.blocking.row_tile, rows_of_pass));
    sums.split(keys, block, in_block, keys_of_block).split(s.r, r_outer, r_inner, rows, TailStrategy::GuardWithIf);
    if (s.blocking.words) {
        sums.split(s.l, d_outer, d_inner, lanes);
        if (vectors * rows <= most) {
            sums.reorder(s.part, d_inner, d_outer, r_inner, in_block, r_outer, block);
        } else {
            sums.reorder(d_inner, d_outer, r_inner, in_block, s.part, r_outer, block);
        }
        sums.unroll(s.part);
    } else {
        int passes = 1; // as few as there may be
        while (passes < vectors && (rows * vectors > most * passes || vectors % passes != 0)) {
            passes++;
        }
        sums.split(s.d, d_outer, d_rest, passes * lanes)
            .split(d_rest, pass, d_inner, lanes)
            .reorder(d_inner, d_outer, r_inner, in_block, pass, r_outer, block);
        // In a loop of two passes LLVM 21 may store all sums at every key. With 16 registers there are more passes, and code for each of
        // them takes up to 1.3 of the time.
        if (machine.many_registers()) {
            sums.unroll(pass);
        }
    }
    sums.vectorize(d_inner).unroll(d_outer).unroll(r_inner);
    return in_block;
}

// Sums of probs * value.
void schedule_values(HeadLanesStages &s, const Machine &machine) {
    const bool words = s.blocking.words;
    const Var column = words ? s.l : s.d;
    s.acc.compute_at(s.partial, s.rt).bound_extent(s.r, s.blocking.row_tile).vectorize(column, s.blocking.lanes);
    if (words) {
        s.acc.bound(s.part, 0, 2).reorder_storage(s.l, s.part);
        s.acc_columns.compute_at(s.partial, s.rt).bound_extent(s.r, s.blocking.row_tile).update().reorder(s.halves.x, s.halves.y);
        s.acc_columns.update().allow_race_conditions().unroll(s.halves.x).vectorize(s.halves.y, s.blocking.lanes);
    }
    int update = 0;
    for (const Halide::RDom *domain : s.value_keys.loops()) {
        const Halide::Stage sums = s.acc.update(update);
        const RVar in_block = schedule_block_of_values(sums, s, *domain, machine);
        if (!s.fetched_values.empty()) {
            s.fetched_values[size_t(update)].compute_at(s.acc, in_block).bound_extent(s.kk, 1);
        }
        update++;
    }
}

// The loop over blocks of keys whose scores are computed together.
RVar schedule_scores(HeadLanesStages &s, Func taken, const Machine &machine) {
    const int rows = s.blocking.row_tile;
    taken.update(1).reorder(s.key_blocks.x, s.r, s.key_blocks.y).unroll(s.key_blocks.x).unroll(s.r);
    RVar keys = s.key_blocks.y;
    if (s.pages.defined()) { // a page is found once for its keys
        RVar of_page("of_page"), in_page("in_page");
        taken.update(1).split(keys, of_page, in_page, std::max(keys_of_block / s.blocking.key_unroll, 1));
        keys = in_page;
    }
    if (s.fetched_keys.defined()) {
        s.fetched_keys.compute_at(taken, keys).bound_extent(s.kk, s.blocking.key_unroll).unroll(s.kk);
    }
    // Rows side by side are added up over lanes together, which takes half the shuffles; with 32 registers keys, too: hot 0.87 to 0.92 of
    // the time, with 16 registers bf16 1.04.
    const bool together = rows > 1 && (rows & (rows - 1)) == 0;
    // Without a bound on keys Halide 21 may take memory from the heap for every few of them.
    s.scores.compute_at(taken, keys).bound_extent(s.r, rows).bound_extent(s.kk, s.blocking.key_unroll);
    s.scores.update().reorder(s.rl, s.r, s.kk).atomic().vectorize(s.rl);
    const bool keys_together = together && machine.many_registers();
    for (Halide::Stage sums : {Halide::Stage(s.scores), s.scores.update()}) {
        together ? sums.vectorize(s.r, rows) : sums.unroll(s.r);
        keys_together ? sums.vectorize(s.kk) : sums.unroll(s.kk);
    }
    s.lane_scores.compute_at(taken, keys)
        .bound_extent(s.r, rows)
        .bound_extent(s.kk, s.blocking.key_unroll)
        .vectorize(s.l)
        .unroll(s.r)
        .unroll(s.kk);
    Halide::Stage products = s.lane_scores.update();
    if (s.query_shorts.defined()) { // the two products of a lane are vpmaddwd
        products.reorder(s.rv.x, s.l, s.r, s.kk, s.rv.y).atomic().vectorize(s.rv.x).vectorize(s.l);
        products.unroll(s.r).unroll(s.kk).unroll(s.rv.y);
    } else {
        products.reorder(s.l, s.r, s.kk, s.rv).vectorize(s.l).unroll(s.r).unroll(s.kk).unroll(s.rv);
    }
    return keys;
}

// Keys are rotated where their scores are made, both entries of a pair together.
void schedule_rotation(HeadLanesStages &s, const LoopLevel &keys) {
    s.key_rows.compute_at(keys).bound_extent(s.kk, s.blocking.key_unroll).vectorize(s.d, s.blocking.lanes);
    for (Func f : {s.query_rows, s.key_rows}) {
        f.update().reorder(s.rotary.x, s.rotary.y).unroll(s.rotary.x).allow_race_conditions();
        f.update().vectorize(s.rotary.y, std::min(s.blocking.lanes, s.rotary_dim / 2), TailStrategy::GuardWithIf);
    }
}

void schedule_query(HeadLanesStages &s) {
    const int rows = s.blocking.row_tile;
    if (s.query_parts.defined()) {
        s.query_parts.compute_at(s.partial, s.rt).bound_extent(s.r, rows).bound(s.part, 0, 2).vectorize(s.l, s.blocking.lanes);
    } else if (s.query_words.defined()) {
        s.query_words.compute_at(s.partial, s.rt).bound_extent(s.r, rows).vectorize(s.l, s.blocking.lanes);
        s.score_factor.compute_at(s.partial, s.rt);
    } else {
        s.query_rows.compute_at(s.partial, s.rt).bound_extent(s.r, rows).vectorize(s.d, s.blocking.lanes);
    }
    if (s.query_columns.defined()) {
        s.query_columns.compute_at(s.partial, s.rt).bound_extent(s.r, rows).vectorize(s.x, s.blocking.lanes);
    }
    if (s.query_step.defined()) {
        for (Func f : {s.query_largest, s.query_poison, s.query_step, s.query_shorts, s.query_bytes, s.query_sums}) {
            if (f.defined()) {
                f.compute_at(s.partial, s.rt).bound_extent(s.r, rows);
            }
        }
        s.query_largest.update().atomic().vectorize(s.rd, s.blocking.lanes);
        s.query_poison.update().atomic().vectorize(s.rd, s.blocking.lanes);
        const int lanes = s.blocking.integer_lanes;
        if (s.query_shorts.defined()) {
            s.query_shorts.vectorize(s.d, lanes);
        } else {
            s.query_bytes.vectorize(s.l, lanes);
            s.query_sums.vectorize(s.l, lanes).update().vectorize(s.l, lanes);
        }
    }
}

} // namespace

void schedule_head_lanes(HeadLanesStages &s, const AttentionOut &o, const Machine &machine) {
    const int rows = s.blocking.row_tile;
    Var merge_task("merge_task"), out_task("out_task");
    Func out = o.func;
    out.vectorize(o.d, s.blocking.lanes).fuse(o.h, o.b, out_task);
    out.specialize(s.rows_of_call >= most_serial_floats / s.head_dim_v).parallel(out_task);
    s.merged.compute_root().bound(s.x, 0, s.head_dim_v + 2).bound(s.r, 0, rows).vectorize(s.x, s.blocking.lanes, TailStrategy::GuardWithIf);
    s.merged.fuse(s.hkv, s.b, merge_task).parallel(merge_task);
    s.sums.compute_at(s.merged, s.rt).bound(s.x, 0, s.head_dim_v + 1).bound_extent(s.r, rows);
    s.sums.vectorize(s.x, s.blocking.lanes, TailStrategy::GuardWithIf);
    s.sums.update().reorder(s.x, s.splits, s.r, s.rt, s.hkv, s.b).vectorize(s.x, s.blocking.lanes, TailStrategy::GuardWithIf);
    s.reference.compute_at(s.merged, s.rt).bound_extent(s.r, rows);

    const RVar column = s.columns;
    s.partial.compute_root().bound(s.x, 0, s.head_dim_v + 2).bound(s.r, 0, rows);
    s.partial.update()
        .allow_race_conditions() // columns are written once
        .reorder(column, s.r, s.rt, s.task)
        .parallel(s.task)
        .vectorize(column, s.blocking.lanes, TailStrategy::GuardWithIf);
    for (Func f : s.row_bounds.funcs()) {
        f.compute_at(s.partial, s.rt).bound_extent(s.r, rows);
    }
    if (s.pages.defined()) {
        s.pages.compute_at(s.partial, s.task).bound_extent(s.page_slot, s.page_slots);
    }
    for (Func f : {s.key_scales, s.value_scales}) {
        if (f.defined()) {
            f.compute_at(s.partial, s.rt).bound_extent(s.kk, s.blocking.split_len).update().unroll(s.keys.x);
        }
    }
    if (s.weights.defined()) {
        schedule_of_keys(s.weights, s, rows, machine);
    }
    schedule_values(s, machine);
    s.row_sum.compute_at(s.partial, s.rt).bound_extent(s.r, rows);
    reduce_keys(s.row_sum, s);
    schedule_of_keys(s.probs, s, rows, machine);
    if (s.fetched_first.defined()) {
        s.fetched_first.compute_at(s.probs, s.keys.y).bound_extent(s.x, 1).bound_extent(s.r, 1);
    }
    s.row_reference.compute_at(s.partial, s.rt).bound_extent(s.r, rows);
    s.row_max.compute_at(s.partial, s.rt).bound_extent(s.r, rows);
    reduce_keys(s.row_max, s);
    schedule_of_keys(s.logits, s, rows, machine);
    // Scores go into logits at once, or into row_scores, from which logits are made along the keys.
    Func taken = s.row_scores.defined() ? s.row_scores : s.logits;
    if (s.row_scores.defined()) {
        schedule_of_keys(s.row_scores, s, rows, machine);
    }
    const RVar keys = schedule_scores(s, taken, machine);
    schedule_query(s);
    if (s.rotary_dim > 0) {
        schedule_rotation(s, LoopLevel(taken, keys));
    }
}

void schedule_head_lanes_lse(const HeadLanesStages &s, const AttentionOut &o, Func lse) {
    Var task("task");
    lse.fuse(o.h, o.b, task);
    lse.specialize(s.rows_of_call >= most_serial_lse).parallel(task);
}

} // namespace polyhead::gen
