// CPU schedule of the frame "head lanes".
//
//   parallel (batch, key/value head, split)
//     for tiles of rows                                     a second tile finds the split's keys in L2
//       for key_unroll keys: lane_scores, scores, logits    one load of key per row_tile multiply-adds, head_dim unrolled
//       row_max, probs, row_sum                             vectors along the keys of the split
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
// Rows of a pass over values of bytes.
constexpr int rows_of_byte_values = 4;
// Keys whose values stay in the L1 cache for all passes.
constexpr int keys_of_pass = 16;

// sum or max over the keys of a split: vectors along the keys, one reduction tree at the end.
void reduce_keys(Func f, const Halide::RDom &keys) {
    f.update().atomic().vectorize(keys.x);
}

// What each key of a split has, filled vector by vector by the first update.
void schedule_of_keys(Func f, const HeadLanesStages &s, int rows) {
    f.compute_at(s.partial, s.rt).bound_extent(s.kk, s.blocking.split_len).bound_extent(s.r, rows);
    f.update(0).allow_race_conditions().vectorize(s.keys.x);
}

// Rows, and vectors of columns, whose sums are in registers while a pass reads the values. A pass has whole rows of values where they fit:
// the first one reads them from memory, in order, and the others find them in L2. Passes are as equal as they can be.
std::pair<int, int> pass_of(int rows, int vectors, int registers) {
    const int most = registers - registers_beside_acc;
    const auto balanced = [](int count, int at_most) {
        const int passes = (count + at_most - 1) / at_most;
        return (count + passes - 1) / passes;
    };
    return vectors > most ? std::pair(1, balanced(vectors, most)) : std::pair(balanced(rows, most / vectors), vectors);
}

// Sums over values of bytes: a pass has up to four rows and every n-th vector, so that a vector is converted once for these rows, and the
// first pass asks memory for all lines of a row. The passes go over blocks of keys that stay in the L1 cache. Returns the loop over blocks.
RVar schedule_byte_values(Halide::Stage sums, const HeadLanesStages &s, const RVar &keys, const Machine &machine) {
    Var d_outer("d_outer"), d_rest("d_rest"), d_inner("d_inner"), pass("pass"), r_outer("r_outer"), r_inner("r_inner");
    RVar block("block"), in_block("in_block");
    const int lanes = s.blocking.lanes, most = machine.registers - registers_beside_acc;
    sums.split(keys, block, in_block, s.fetched_values.empty() ? keys_of_pass : s.blocking.fetch_keys);
    const int vectors = s.head_dim_v / lanes, rows = std::min(s.blocking.row_tile, rows_of_byte_values);
    int passes = 1; // as few as the registers allow
    while (passes < vectors && (rows * vectors > most * passes || vectors % passes != 0)) {
        passes++;
    }
    sums.split(s.d, d_outer, d_rest, passes * lanes)
        .split(d_rest, pass, d_inner, lanes)
        .split(s.r, r_outer, r_inner, rows, TailStrategy::GuardWithIf)
        .reorder(d_inner, d_outer, r_inner, in_block, pass, r_outer, block);
    sums.vectorize(d_inner).unroll(d_outer).unroll(r_inner);
    return block;
}

// Sums of probs * value.
void schedule_values(HeadLanesStages &s, const Machine &machine) {
    const int rows = s.blocking.row_tile;
    const bool words = s.blocking.words;
    const Var column = words ? s.l : s.d;
    s.acc.compute_at(s.partial, s.rt).bound_extent(s.r, rows).vectorize(column, s.blocking.lanes);
    if (words) {
        s.acc.bound(s.part, 0, 2).reorder_storage(s.l, s.part);
        s.acc_columns.compute_at(s.partial, s.rt).bound_extent(s.r, rows).update().reorder(s.halves.x, s.halves.y).allow_race_conditions();
        s.acc_columns.update().unroll(s.halves.x).vectorize(s.halves.y, s.blocking.lanes);
    }
    const auto [rows_of_pass, vectors_of_pass] = pass_of(rows, s.head_dim_v / s.blocking.lanes, machine.registers);
    int update = 0;
    for (const Halide::RDom *domain : s.value_keys.loops()) {
        Var d_outer("d_outer"), d_inner("d_inner"), r_outer("r_outer"), r_inner("r_inner");
        const RVar keys = *domain;
        Halide::Stage sums = s.acc.update(update);
        if (s.value_bytes == 1) {
            const RVar block = schedule_byte_values(sums, s, keys, machine);
            if (!s.fetched_values.empty()) {
                s.fetched_values[size_t(update)].compute_at(s.acc, block).bound_extent(s.block, 1).bound_extent(s.r, rows);
            }
            update++;
            continue;
        }
        sums.split(column, d_outer, d_inner, vectors_of_pass / (words ? 2 : 1) * s.blocking.lanes, TailStrategy::GuardWithIf)
            .split(s.r, r_outer, r_inner, rows_of_pass, TailStrategy::GuardWithIf);
        if (words) {
            sums.reorder(s.part, d_inner, r_inner, keys, d_outer, r_outer).unroll(s.part);
        } else {
            sums.reorder(d_inner, r_inner, keys, d_outer, r_outer);
        }
        sums.vectorize(d_inner, s.blocking.lanes).unroll(d_inner).unroll(r_inner);
        if (!s.fetched_values.empty()) {
            RVar block("block"), in_block("in_block");
            sums.split(keys, block, in_block, s.blocking.fetch_keys);
            s.fetched_values[size_t(update)].compute_at(s.acc, block).bound_extent(s.block, 1).bound_extent(s.r, rows_of_pass);
        }
        update++;
    }
}

// The loop over blocks of keys whose scores are computed together.
RVar schedule_scores(HeadLanesStages &s, Func taken) {
    const int rows = s.blocking.row_tile;
    taken.update(1).reorder(s.key_blocks.x, s.r, s.key_blocks.y).unroll(s.key_blocks.x).unroll(s.r);
    RVar keys = s.key_blocks.y, block("block"), in_block("in_block");
    if (s.fetched_keys.defined()) {
        taken.update(1).split(keys, block, in_block, s.blocking.fetch_keys / s.blocking.key_unroll);
        s.fetched_keys.compute_at(taken, block).bound_extent(s.block, 1);
        keys = in_block;
    }
    // Rows side by side are added up over lanes together, which takes half the shuffles.
    const bool together = rows > 1 && (rows & (rows - 1)) == 0;
    // Without a bound on keys Halide 21 may take memory from the heap for every few of them.
    s.scores.compute_at(taken, keys).bound_extent(s.r, rows).bound_extent(s.kk, s.blocking.key_unroll).unroll(s.kk);
    s.scores.update().reorder(s.rl, s.r, s.kk).atomic().vectorize(s.rl).unroll(s.kk);
    if (together) {
        s.scores.vectorize(s.r, rows).update().vectorize(s.r, rows);
    } else {
        s.scores.unroll(s.r).update().unroll(s.r);
    }
    s.lane_scores.compute_at(taken, keys)
        .bound_extent(s.r, rows)
        .bound_extent(s.kk, s.blocking.key_unroll)
        .vectorize(s.l)
        .unroll(s.r)
        .unroll(s.kk);
    s.lane_scores.update().reorder(s.l, s.r, s.kk, s.rv).vectorize(s.l).unroll(s.r).unroll(s.kk).unroll(s.rv);
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
    if (s.query_quads.defined()) {
        for (Func f : {s.query_largest, s.query_poison, s.query_step, s.query_quads, s.query_sums}) {
            f.compute_at(s.partial, s.rt).bound_extent(s.r, rows);
        }
        s.query_largest.update().atomic().vectorize(s.rd, s.blocking.lanes);
        s.query_poison.update().atomic().vectorize(s.rd, s.blocking.lanes);
        s.query_quads.vectorize(s.l, s.blocking.quad_lanes);
        s.query_sums.vectorize(s.l, s.blocking.quad_lanes).update().vectorize(s.l, s.blocking.quad_lanes);
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
    for (Func f : {s.key_scales, s.value_scales}) {
        if (f.defined()) {
            f.compute_at(s.partial, s.rt).bound_extent(s.kk, s.blocking.split_len).update().unroll(s.keys.x);
        }
    }
    if (s.weights.defined()) {
        schedule_of_keys(s.weights, s, rows);
    }
    schedule_values(s, machine);
    s.row_sum.compute_at(s.partial, s.rt).bound_extent(s.r, rows);
    reduce_keys(s.row_sum, s.keys);
    schedule_of_keys(s.probs, s, rows);
    s.row_reference.compute_at(s.partial, s.rt).bound_extent(s.r, rows);
    s.row_max.compute_at(s.partial, s.rt).bound_extent(s.r, rows);
    reduce_keys(s.row_max, s.keys);
    schedule_of_keys(s.logits, s, rows);
    // Scores go into logits at once, or into row_scores, from which logits are made along the keys.
    Func taken = s.row_scores.defined() ? s.row_scores : s.logits;
    if (s.row_scores.defined()) {
        schedule_of_keys(s.row_scores, s, rows);
    }
    const RVar keys = schedule_scores(s, taken);
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
