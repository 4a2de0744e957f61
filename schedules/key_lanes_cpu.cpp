// CPU schedule of the frame "key lanes".
//
//   delta, row_magnitude                             once for all rows
//   parallel (batch, key/value head[, split])
//     sums: rows of gradients of value and key of the task's keys, and of query
//     for parts of kv_tile keys
//       key_panels, value_panels                     transposed in squares in registers; lanes are keys
//       for heads of the group, for tiles of q_tile queries that see the part
//         weights: score_rows x key_panel scores in registers over head_dim, one broadcast of query per vector of keys
//         grad_scores: the same of grad_out and value
//         for tiles of grad_rows rows, first of value, then of key, then of query
//           for blocks of grad_columns columns
//             tile_sums: += weights * grad_out, or += grad_scores * query, or += grad_scores * key; in registers
//             sums += tile_sums
//     grad_query, grad_key, grad_value               one task writes all three, but where heads are split
// Where the time goes: docs/measured/schedules.md.
#include "schedules.h"

#include <algorithm>

#include "../generators/frames/key_lanes.h"

namespace polyhead::gen {

using Halide::Func;
using Halide::LoopLevel;
using Halide::RVar;
using Halide::TailStrategy;
using Halide::Var;

namespace {

constexpr int most_lanes_of_numbers = 8; // numbers of tiles side by side

// Rows side by side, as squares of grad_out and out that are transposed in registers: LLVM makes gathers of rows that are unrolled.
void schedule_delta(KeyLanesStages &s) {
    Var task("task"), square("square"), row("row");
    const int side = s.grad_out_squares->side;
    s.delta.compute_root().split(s.q, square, row, side, TailStrategy::RoundUp).vectorize(row).fuse(s.h, s.b, task).parallel(task);
    s.delta_rows.compute_at(s.delta, square).bound_extent(s.lane, side).vectorize(s.lane);
    s.delta_rows.update().reorder(s.lane, s.delta_entries.x, s.delta_entries.y).vectorize(s.lane).unroll(s.delta_entries.x);
    for (TransposedSquares *squares : {&*s.grad_out_squares, &*s.out_squares}) {
        schedule_square(*squares, LoopLevel(s.delta_rows, RVar(s.delta_entries.y)), side);
    }
}

void schedule_rows_of_queries(KeyLanesStages &s, const Machine &machine) {
    schedule_delta(s);
    if (s.row_magnitude.defined()) {
        Var task("task");
        Func magnitude = s.row_magnitude.in(); // a parallel loop of the largest themselves would make each of them an atomic one
        magnitude.compute_root().fuse(s.h, s.b, task).parallel(task);
        s.row_magnitude.compute_at(magnitude, s.q);
        s.row_magnitude.update().atomic().vectorize(RVar(s.magnitude_words.x), machine.lanes);
    }
}

// What is made once for a part.
void schedule_panels(KeyLanesStages &s, const LoopLevel &part) {
    const KeyLanesBlocking &blocking = s.blocking;
    const RVar lane = s.squares[0], column = s.squares[1], block = s.squares[2], vector = s.squares[3], panel = s.squares[4];
    if (s.score_factor.defined()) {
        s.score_factor.compute_root();
    }
    for (Func f : {s.key_panels, s.value_panels}) {
        f.compute_at(part)
            .bound_extent(s.lane, blocking.key_panel)
            .bound_extent(s.d, blocking.words)
            .bound_extent(s.panel, blocking.panels());
        f.update().reorder(lane, column, block, vector, panel).allow_race_conditions().vectorize(lane).unroll(column);
    }
    schedule_square(*s.key_squares, LoopLevel(s.key_panels, block), blocking.lanes);
    schedule_square(*s.value_squares, LoopLevel(s.value_panels, block), blocking.lanes);
    if (s.key_magnitude.defined()) {
        s.key_magnitude.compute_at(part)
            .update()
            .reorder(s.key_words.x, s.key_words.y, s.key_words.z)
            .atomic()
            .vectorize(RVar(s.key_words.x), blocking.lanes);
    }
}

// A product of two rows in registers.
void schedule_scores(Func f, const RVar &words, KeyLanesStages &s, const LoopLevel &level) {
    const KeyLanesBlocking &blocking = s.blocking;
    f.compute_at(level).bound_extent(s.lane, blocking.key_panel).bound_extent(s.row, blocking.score_rows);
    f.vectorize(s.lane, blocking.lanes).unroll(s.lane).unroll(s.row);
    f.update().reorder(s.lane, s.row, words).vectorize(s.lane, blocking.lanes).unroll(s.lane).unroll(s.row);
}

// rows: of a tile, or words of them.
void schedule_pairs(Func f, const Halide::RDom &r, KeyLanesStages &s, const LoopLevel &tile, int rows) {
    const KeyLanesBlocking &blocking = s.blocking;
    f.compute_at(tile).bound_extent(s.kk, blocking.kv_tile).bound_extent(s.qi, rows);
    f.align_storage(s.kk, blocking.kv_tile + blocking.lanes); // rows that lie a multiple of 1 KB apart share sets of the L1 cache
    f.update().reorder(r.x, r.y, r.z, r.w).allow_race_conditions().vectorize(RVar(r.x), blocking.lanes).unroll(r.x).unroll(r.y);
    f.update().never_partition_all();
}

// Words of what products of gradients multiply.
void schedule_words(KeyLanesStages &s, const LoopLevel &tile) {
    if (!s.weight_words.defined()) {
        return;
    }
    const int rows = s.blocking.q_tile, k = s.operands.product.k;
    schedule_pairs(s.weight_words, s.weight_pairs, s, tile, rows / k);
    schedule_pairs(s.grad_score_words, s.score_pairs, s, tile, rows / k);
    schedule_pairs(s.grad_score_rows, s.row_pairs, s, tile, rows);
}

// What is made for a tile of queries and a part.
void schedule_tile(KeyLanesStages &s, const LoopLevel &tile) {
    const KeyLanesBlocking &blocking = s.blocking;
    // A vector is no longer than a tile of queries, which a tiling may make shorter than the lanes.
    const int lanes = blocking.lanes, few = std::min({lanes, most_lanes_of_numbers, blocking.q_tile});
    for (Func f : s.bounds.funcs()) {
        f.compute_at(tile).bound_extent(s.qi, blocking.q_tile).vectorize(s.qi, few);
    }
    for (Func f : {s.row_reference, s.row_delta}) {
        f.compute_at(tile).bound_extent(s.qi, blocking.q_tile).vectorize(s.qi, few);
    }
    for (size_t i = 0; i < s.pairs.size(); i++) {
        s.pairs[i].compute_at(tile).bound_extent(s.kk, blocking.kv_tile).bound_extent(s.qi, blocking.q_tile);
        for (int j = 0; j < 2; j++) {
            const Halide::RDom &r = s.pair_blocks[2 * i + size_t(j)];
            s.pairs[i].update(j).reorder(r.x, r.y, s.qi).allow_race_conditions().vectorize(RVar(r.x));
        }
    }
    schedule_pairs(s.weights, s.weight_rows, s, tile, blocking.q_tile);
    schedule_pairs(s.grad_scores, s.logit_rows, s, tile, blocking.q_tile);
    if (s.dropout.defined()) {
        const Halide::RDom &r = s.dropout_groups;
        s.dropout.compute_at(tile).bound_extent(s.kk, blocking.kv_tile).bound_extent(s.qi, blocking.q_tile);
        s.dropout.update().reorder(r.x, r.y, r.z, r.w).allow_race_conditions().vectorize(RVar(r.x)).unroll(r.y);
        s.dropout_words.compute_at(s.dropout, RVar(r.z)).bound_extent(s.lane, Dropout::lanes).vectorize(s.lane);
    }
    if (s.kept_weights.defined() && s.first_turn.defined()) { // products read them
        s.kept_weights.compute_at(tile).bound_extent(s.kk, blocking.kv_tile).bound_extent(s.qi, blocking.q_tile);
        s.kept_weights.update().allow_race_conditions().vectorize(RVar(s.kept_rows.x), lanes);
    }
    schedule_words(s, tile);
    schedule_scores(s.scores, s.score_words, s, LoopLevel(s.weights, RVar(s.weight_rows.z)));
    schedule_scores(s.grad_weights, s.grad_words, s, LoopLevel(s.grad_scores, RVar(s.logit_rows.z)));
    if (!s.first_turn.defined()) { // gradients of logits are all that is wanted
        return;
    }
    if (s.tile_magnitude.defined()) {
        s.tile_magnitude.compute_at(tile);
    }
    s.first_turn.compute_at(tile).bound_extent(s.t, blocking.tiles()).vectorize(s.t, few, TailStrategy::GuardWithIf);
    s.turns_end.compute_at(tile).bound_extent(s.t, blocking.tiles()).bound_extent(s.kind, int(s.products.size()));
    s.turns_end.vectorize(s.t, few, TailStrategy::GuardWithIf);
}

// Lines of sums for tensors of the expression.
void schedule_tables(KeyLanesStages &s, const LoopLevel &tile) {
    const KeyLanesBlocking &blocking = s.blocking;
    const int lanes = blocking.lanes, width = blocking.width;
    const auto in_vectors = [lanes](Halide::Stage update, const Halide::RDom &r) {
        update.reorder(r.x, r.y).allow_race_conditions().vectorize(RVar(r.x), lanes);
    };
    if (s.shifted.defined()) {
        s.shifted.compute_at(tile).bound_extent(s.kk, blocking.kv_tile + 2 * blocking.q_tile).bound_extent(s.qi, blocking.q_tile);
        s.shifted.vectorize(s.kk, lanes);
        in_vectors(s.shifted.update(), s.shifted_pairs);
    }
    for (size_t i = 0; i < s.tables.size(); i++) {
        TableLine &line = s.tables[i];
        line.sums.compute_at(tile).bound_extent(s.element, (line.rows + 1) * width).vectorize(s.element, lanes);
        if (line.read.follows == language::Follows::pairs) { // neighbours may read the same element
            line.sums.update().reorder(line.pairs.x, line.pairs.y);
        } else {
            in_vectors(line.sums.update(), line.pairs);
        }
        if (line.parts.defined()) {
            line.parts.compute_at(tile).bound_extent(s.lane, lanes).bound_extent(s.qi, blocking.q_tile).vectorize(s.lane);
            line.parts.update().reorder(line.shares.x, line.shares.y, s.qi).vectorize(RVar(line.shares.x), lanes);
        }
        in_vectors(s.table_rows.update(int(i)), line.copied);
    }
    if (s.table_rows.defined()) {
        s.table_rows.compute_at(tile).bound_extent(s.x, width).bound_extent(s.row, blocking.table_tiles * blocking.grad_rows);
    }
}

void schedule_products(KeyLanesStages &s) {
    const KeyLanesBlocking &blocking = s.blocking;
    s.tile_sums.compute_at(s.sums, RVar(s.merge[2])).bound_extent(s.x, blocking.grad_columns).bound_extent(s.row, blocking.grad_rows);
    s.tile_sums.vectorize(s.x, blocking.lanes).unroll(s.x).unroll(s.row);
    for (size_t i = 0; i < s.products.size(); i++) {
        const RVar turns = s.products[i];
        s.tile_sums.update(int(i)).reorder(s.x, s.row, turns).vectorize(s.x, blocking.lanes).unroll(s.x).unroll(s.row);
    }
}

// Gradients that linear layers of the same kernel read.
void keep_gradients(KeyLanesStages &s) {
    const auto at_root = [&s](Func f, const Var &token, const Halide::Expr &tokens, const Halide::Expr &heads) {
        f.compute_root().bound(token, 0, tokens).bound(s.h, 0, heads).bound(s.b, 0, s.batch);
    };
    at_root(s.grad_query, s.q, s.seq_len_q, s.num_kv_heads * s.group_size);
    at_root(s.grad_key, s.kv, s.seq_len_kv, s.num_kv_heads);
    at_root(s.grad_value, s.kv, s.seq_len_kv, s.num_kv_heads);
}

} // namespace

void schedule_key_lanes(KeyLanesStages &s, const Machine &machine) {
    const KeyLanesBlocking &blocking = s.blocking;
    const int lanes = machine.lanes;
    Var task("task"), head("head");
    const RVar x = s.merge[0], row = s.merge[1], block = s.merge[2], tile = s.merge[3], qt = s.merge[4], g = s.merge[5], p = s.merge[6];
    schedule_rows_of_queries(s, machine);
    s.sums.bound(s.x, 0, blocking.width).bound(s.row, 0, s.rows).vectorize(s.x, lanes);
    const auto along_row = [&](Func f, int columns) {
        f.bound(s.d, 0, columns).vectorize(s.d, std::min(lanes, columns), TailStrategy::GuardWithIf);
    };
    Func of_query = s.of_query.written(s.grad_query), of_key = s.of_key.written(s.grad_key);
    along_row(of_query, s.head_dim);
    along_row(of_key, s.head_dim);
    std::vector<Func> results = {of_query, of_key};
    if (s.grad_value.defined()) { // otherwise key has the values
        along_row(s.grad_value, s.head_dim_v);
        results.push_back(s.grad_value);
    }
    if (s.read_on) {
        keep_gradients(s);
    }
    if (s.table_sums.defined()) {
        s.table_sums.compute_root().bound(s.x, 0, blocking.width).bound(s.row, 0, s.group_size * s.table_rows_of_head);
        s.table_sums.bound(s.h, 0, s.num_kv_heads).bound(s.b, 0, s.batch).vectorize(s.x, lanes);
        results.push_back(s.table_sums);
    }
    Halide::Stage update = s.sums.update();
    update.reorder({x, row, block, tile, qt, g, p, s.sp, s.h, s.b}).allow_race_conditions();
    // One loop over tiles and parts: of several T_kv would choose, and LLVM may round in another order in each.
    update.vectorize(x, lanes).unroll(x).unroll(row).never_partition_all();
    if (blocking.splits == 1) {
        // Loops of all results are one, over batch rows and key/value heads: their names and extents are equal.
        of_query.split(s.h, s.h, s.g, s.group_size, TailStrategy::GuardWithIf);
        of_query.reorder(s.d, s.q, s.g, s.h, s.b);
        for (Func &f : results) {
            f.parallel(s.h).parallel(s.b);
        }
        std::for_each(results.begin() + 1, results.end(), [&](Func &f) { f.compute_with(of_query, s.h); });
        s.sums.compute_at(of_query, s.h).bound(s.sp, 0, 1);
    } else {
        for (Func &f : results) {
            f.fuse(s.h, s.b, task).parallel(task);
        }
        s.sums.compute_root().bound(s.sp, 0, blocking.splits).bound(s.h, 0, s.num_kv_heads).bound(s.b, 0, s.batch);
        s.sums.fuse(s.sp, s.h, task).fuse(task, s.b, task).parallel(task);
        update.fuse(s.h, s.b, task).parallel(s.sp).parallel(task);
    }
    schedule_head_gradient(s.of_query, s.grad_query, s.q, machine);
    schedule_head_gradient(s.of_key, s.grad_key, s.kv, machine);
    schedule_head_gradient(s.of_value, s.grad_value, s.kv, machine);
    schedule_panels(s, LoopLevel(s.sums, p));
    schedule_tile(s, LoopLevel(s.sums, qt));
    schedule_tables(s, LoopLevel(s.sums, qt));
    schedule_products(s);
}

void schedule_pair_sums(PairSums &s, const Machine &machine) {
    KeyLanesStages &tiles = s.tiles;
    const KeyLanesBlocking &blocking = tiles.blocking;
    const RVar kk = s.merge[0], qi = s.merge[1], qt = s.merge[2], head = s.merge[3], batch = s.merge[4], p = s.merge[5];
    Var task("task");
    s.sums.compute_root().bound(s.kv, 0, s.padded_keys).bound(s.q, 0, s.padded_rows).bound(s.h, 0, s.heads).bound(s.b, 0, s.batch);
    s.sums.fuse(s.h, s.b, task).parallel(task);
    Halide::Stage update = s.sums.update();
    update.reorder({kk, qi, qt, head, batch, p, s.h, s.b}).allow_race_conditions().fuse(s.h, s.b, task).parallel(task);
    update.never_partition_all();
    if (!s.over_keys) { // parts have keys of their own
        s.sums.vectorize(s.kv, machine.lanes);
        update.parallel(p).vectorize(kk, machine.lanes);
    }
    const LoopLevel tile(s.sums, qt);
    for (Func f : {s.row_sums, s.column_sums, s.tile_sum}) {
        if (f.defined()) {
            f.compute_at(tile);
        }
    }
    if (s.row_sums.defined()) {
        s.row_sums.bound_extent(tiles.qi, blocking.q_tile).update().atomic().vectorize(RVar(s.keys.x), machine.lanes);
    }
    if (s.column_sums.defined()) {
        s.column_sums.bound_extent(tiles.kk, blocking.kv_tile).vectorize(tiles.kk, machine.lanes);
        s.column_sums.update().reorder(tiles.kk, s.rows.x).vectorize(tiles.kk, machine.lanes);
    }
    schedule_panels(tiles, LoopLevel(s.sums, head));
    schedule_tile(tiles, tile);
}

} // namespace polyhead::gen
