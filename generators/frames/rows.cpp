// Frames "thread rows" and "block tiles": attention with a running softmax in columns that threads own.
#include "rows.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::max;
using Halide::min;
using Halide::RDom;
using Halide::select;
using Halide::Var;

namespace {

int padded(int count, int multiple) {
    return (count + multiple - 1) / multiple * multiple;
}

// Entry x of lane l: pieces of vec entries go round the lanes.
Expr entry_of(const RowsBlocking &k, const Expr &x, const Expr &l) {
    return x / k.vec * (k.vec * k.lanes) + l * k.vec + x % k.vec;
}

// The coordinates of the frame: clamped positions, and whether the ends of a tile are visible.
struct Coordinates {
    const AttentionFormulas &formulas;
    RowsBlocking blocking;

    int tile_rows() const { return blocking.tile_rows(); }
    Expr entry(const Expr &x, const Expr &l) const { return entry_of(blocking, x, l); }
    // With splits a row of a tile is a query of one of the heads that share keys, and h is their key/value head.
    int heads_of_tile() const { return blocking.splits() ? contract::group_size_of(formulas.problem()) : 1; }
    Expr row(const Expr &r, const Expr &g) const { return blocking.shares_keys() ? r : g * blocking.rows + r; }
    // Rows beyond the last query repeat it, so that they never require more keys than a real row.
    Expr query(const Expr &qi, const Expr &qt) const {
        return min((qt * tile_rows() + qi) / heads_of_tile(), formulas.inputs().seq_len_q - 1);
    }
    Expr head(const Expr &qi, const Expr &qt, const Expr &h) const {
        return blocking.splits() ? h * heads_of_tile() + (qt * tile_rows() + qi) % heads_of_tile() : h;
    }
    Expr kv_head(const Expr &h) const { return blocking.splits() ? h : h / formulas.group_size(); }
    Expr first_query(const Expr &qt) const { return query(0, qt); }
    Expr last_query(const Expr &qt) const { return query(tile_rows() - 1, qt); }
    TileRange range(const Expr &qt, const Expr &b) const { return {formulas, first_query(qt), last_query(qt), b}; }
    // By how many queries the rows of a tile differ at most.
    int queries_apart() const { return (tile_rows() - 2 + heads_of_tile()) / heads_of_tile(); }
    // Keys of a step over chunks: all groups that share the keys of a split have a chunk of it.
    int step(int kv_tile) const { return kv_tile * blocking.key_groups(); }
    int steps_of_split(int kv_tile) const { return blocking.split_len / step(kv_tile); }
    // The piece of all keys that is split sp.
    Expr piece(const Expr &sp, const Expr &b) const {
        return blocking.splits() ? KeySplits{formulas, blocking.split_len}.piece(sp, b) : Expr(0);
    }
    // Keys of the chunks that a set of stages passes.
    Expr key(const ChunkStages &s, const Expr &kk, const Expr &c, const Expr &g) const {
        return s.first_key + (blocking.shares_keys() ? c * blocking.groups + g : c) * s.kv_tile + kk;
    }
    Expr clamped_key(const ChunkStages &s, const Expr &kk, const Expr &c, const Expr &g) const {
        // Whole chunks end before the last key, which bounds inference cannot find out. A fixed length shorter than a chunk has no whole
        // chunk, and the promise would then be ignored: the pipeline would require four rows of value where there are three.
        const int fixed = formulas.problem().seq_len_kv;
        const KeySource &keys = formulas.inputs().keys;
        const Expr row = key(s, kk, c, g);
        return s.masked || (fixed > 0 && fixed < step(s.kv_tile)) ? keys.row(row) : keys.existing_row(row);
    }
};

// The logit of key kk of a chunk in row `tile_row` of the tile, which thread g holds as its row r.
Expr logit(const RowsStages &s, const ChunkStages &chunk, const Coordinates &at, const Expr &score, const Expr &r, const Expr &g,
           const Expr &tile_row) {
    const Expr key = at.key(chunk, s.kk, s.c, g), existing = min(key, at.formulas.inputs().seq_len_kv - 1);
    const Expr q = at.query(tile_row, s.qt), h = at.head(tile_row, s.qt, s.h);
    std::vector<Expr> pairs;
    for (const PairTensor &tensor : at.formulas.logits().pair_tensors()) {
        pairs.push_back(tensor.at(existing, q, h, s.b));
    }
    return at.formulas.logits().logit(score, s.row_bounds.at({r, g, s.qt, s.b}, q), key, h, s.b, pairs, chunk.masked);
}

// query_rows = query in the unit of scores, 0 beyond head_dim
void define_query(RowsStages &s, const Coordinates &at) {
    const Expr entry = at.entry(s.x, s.l), row = at.row(s.r, s.g);
    const Expr query = at.formulas.operands().scaled_query(s.whole_pieces ? entry : min(entry, s.head_dim - 1), at.query(row, s.qt),
                                                           at.head(row, s.qt, s.h), s.b);
    s.query_rows(s.x, s.r, s.l, s.g, s.qt, s.h, s.b) = s.whole_pieces ? query : select(entry < s.head_dim, query, 0.0f);
}

// The scores of a thread's own rows; lanes add up their parts of head_dim.
void define_thread_scores(const RowsStages &s, ChunkStages &chunk, const Coordinates &at) {
    const auto &in = at.formulas.inputs();
    const auto &[x, r, l, g, kk, c, qt, sp, h, b] = std::tie(s.x, s.r, s.l, s.g, s.kk, s.c, s.qt, s.sp, s.h, s.b);
    const Expr entry = at.entry(x, l), row = at.clamped_key(chunk, kk, c, g);
    auto within = [&](int width) { return s.whole_pieces ? entry : min(entry, width - 1); };
    const Expr key = at.formulas.operands().key(within(s.head_dim), row, at.kv_head(h), b);
    chunk.key_rows(x, kk, c, l, g, qt, sp, h, b) = s.whole_pieces ? key : select(entry < s.head_dim, key, 0.0f);
    chunk.value_rows(x, kk, c, l, g, qt, sp, h, b) = in.keys.value(within(s.head_dim_v), row, at.kv_head(h), b);
    // dot = query_rows . key_rows, a lane's part of it
    chunk.rd = RDom(0, s.query_entries, "rd");
    chunk.dot(kk, r, c, l, g, qt, sp, h, b) = 0.0f;
    chunk.dot(kk, r, c, l, g, qt, sp, h, b) +=
        s.query_rows(chunk.rd, r, l, g, qt, h, b) * chunk.key_rows(chunk.rd, kk, c, l, g, qt, sp, h, b);
    const Expr score = at.formulas.numerics().sum_over_lanes(chunk.dot(kk, r, c, l, g, qt, sp, h, b), s.blocking.lanes, 1);
    chunk.logits(kk, r, c, l, g, qt, sp, h, b) = logit(s, chunk, at, score, r, g, at.row(r, g));
}

// The scores of a tile, from a chunk of keys that the block shares.
void define_block_scores(const RowsStages &s, ChunkStages &chunk, const Coordinates &at) {
    const auto &in = at.formulas.inputs();
    const auto &[qi, d, kk, c, qt, sp, h, b] = std::tie(s.qi, s.d, s.kk, s.c, s.qt, s.sp, s.h, s.b);
    const Expr row = at.clamped_key(chunk, kk, c, 0);
    chunk.key_chunk(d, kk, c, qt, sp, h, b) = at.formulas.operands().key(min(d, s.head_dim - 1), row, at.kv_head(h), b);
    if (stages_values(at.formulas.problem())) {
        chunk.value_chunk(d, kk, c, qt, sp, h, b) = in.keys.value(min(d, s.head_dim_v - 1), row, at.kv_head(h), b);
    }
    // dot = query . key, in the unit of scores
    chunk.rd = RDom(0, s.head_dim, "rd");
    const Expr query = at.formulas.operands().scaled_query(chunk.rd, at.query(qi, qt), at.head(qi, qt, h), b);
    chunk.dot(kk, qi, c, qt, sp, h, b) = 0.0f;
    chunk.dot(kk, qi, c, qt, sp, h, b) += query * chunk.key_chunk(chunk.rd, kk, c, qt, sp, h, b);
    chunk.logits(kk, qi, c, qt, sp, h, b) =
        logit(s, chunk, at, chunk.dot(kk, qi, c, qt, sp, h, b), qi % s.blocking.rows, qi / s.blocking.rows, qi);
}

// row_max, row_reference, probs and row_sum of a chunk; `row` are the coordinates of logits after its key.
void define_softmax(const RowsStages &s, ChunkStages &chunk, const AttentionFormulas &formulas, const std::vector<Var> &row) {
    auto with = [&row](const Expr &key) {
        std::vector<Expr> args = {key};
        args.insert(args.end(), row.begin(), row.end());
        return args;
    };
    std::vector<Var> with_key = {s.kk};
    with_key.insert(with_key.end(), row.begin(), row.end());
    chunk.keys = RDom(0, chunk.kv_tile, "keys");
    // row_max = max over keys of logits; row_reference = what probs are relative to
    chunk.row_max(row) = row_reference_floor;
    chunk.row_max(row) = max(chunk.row_max(row), chunk.logits(with(chunk.keys)));
    chunk.row_reference(row) = formulas.softmax().reference(chunk.row_max(row));
    // probs = power(logits - row_reference)
    chunk.probs(with_key) = formulas.softmax().power(chunk.logits(with_key) - chunk.row_reference(row));
    chunk.row_sum(row) = 0.0f;
    chunk.row_sum(row) += chunk.probs(with(chunk.keys));
}

// acc of a chunk of keys that the block shares.
void define_chunk_acc(const RowsStages &s, ChunkStages &chunk, const Coordinates &at) {
    const RowsBlocking &k = at.blocking;
    const auto &[x, r, l, g, c, qt, sp, h, b] = std::tie(s.x, s.r, s.l, s.g, s.c, s.qt, s.sp, s.h, s.b);
    const Expr column = min(at.entry(x, l), s.head_dim_v - 1);
    const Halide::Func values = chunk.value_chunk.defined() ? chunk.value_chunk : chunk.key_chunk;
    chunk.value_keys = TileKeys(at.formulas, chunk.kv_tile, at.key(chunk, 0, c, 0), at.range(qt, b));
    chunk.chunk_acc(x, r, c, l, g, qt, sp, h, b) = 0.0f;
    for (const RDom *keys : chunk.value_keys.loops()) {
        const Expr kk = *keys, prob = chunk.probs(kk, g * k.rows + r, c, qt, sp, h, b), value = values(column, kk, c, qt, sp, h, b);
        chunk.chunk_acc(x, r, c, l, g, qt, sp, h, b) = chunk.value_keys.accumulate(
            keys, chunk.chunk_acc(x, r, c, l, g, qt, sp, h, b), prob, value, chunk.logits(kk, g * k.rows + r, c, qt, sp, h, b));
    }
}

// An entry of acc after a chunk, from what it was (rescaled) and the weight of the chunk.
Expr with_chunk(const RowsStages &s, const ChunkStages &chunk, Expr sum, const Expr &weight, const Expr &entry, const Expr &c) {
    const auto &[r, l, g, qt, sp, h, b] = std::tie(s.r, s.l, s.g, s.qt, s.sp, s.h, s.b);
    if (s.blocking.block_tiles) {
        return sum + weight * chunk.chunk_acc(entry, r, c, l, g, qt, sp, h, b);
    }
    for (int kk = 0; kk < chunk.kv_tile; kk++) {
        Expr value = chunk.value_rows(entry, kk, c, l, g, qt, sp, h, b);
        // A row must not use the value of a key that it does not see, which may be NaN. Selecting the value, which all rows of a thread
        // share, keeps the sum free of branches.
        value = chunk.masked ? select(Logits::excluded(chunk.logits(kk, r, c, l, g, qt, sp, h, b)), 0.0f, value) : value;
        sum += chunk.probs(kk, r, c, l, g, qt, sp, h, b) * weight * value;
    }
    return sum;
}

// The running softmax of a row. Its columns are visited in order: the reference before the chunk, the reference, then row_sum and the
// entries, which are rescaled from one to the other.
void define_columns(RowsStages &s, const ChunkStages &chunk, const Coordinates &at) {
    const auto &[r, l, g, qt, sp, h, b] = std::tie(s.r, s.l, s.g, s.qt, s.sp, s.h, s.b);
    const Expr column = chunk.domain.x, c = chunk.domain.y, tile_row = at.row(r, g);
    auto acc = [&](const Expr &x) { return s.acc(x, r, l, g, qt, sp, h, b); };
    auto of_row = [&](const Halide::Func &f) {
        return s.blocking.block_tiles ? f(tile_row, c, qt, sp, h, b) : f(r, c, l, g, qt, sp, h, b);
    };
    const Expr reference = acc(reference_column), rescale = at.formulas.softmax().rescaling(acc(before_column) - reference);
    const Expr weight = at.formulas.softmax().rescaling(of_row(chunk.row_reference) - reference);
    const Expr entry = with_chunk(s, chunk, acc(column) * rescale, weight, max(column - s.stat_columns, 0), c);
    s.acc(column, r, l, g, qt, sp, h, b) = select(column == before_column, reference, column == reference_column,
                                                  max(reference, of_row(chunk.row_reference)), column == sum_column,
                                                  acc(sum_column) * rescale + of_row(chunk.row_sum) * weight, //
                                                  column < s.stat_columns, 0.0f, entry);
}

// Whether bounds inference knows a bound below `value` that is another expression: the bounds of a length that is read, not the length. It
// would compare with both.
bool has_other_bound_below(const Expr &value) {
    using namespace Halide::Internal;
    const Interval bounds = bounds_of_expr_in_scope(value, Scope<Interval>::empty_scope());
    return bounds.has_lower_bound() && !is_const(simplify(bounds.min)) && !can_prove(bounds.min == value);
}

// Which chunks pass where. A condition compares with the chunk itself: (chunk + 1) * kv_tile <= ... is not proved to hold inside the
// loop that it ends. And it mentions a length once: Halide 21 would repeat the rest as a test around every stage of the loop. With splits
// the chunks of one are counted from its first key, in steps in which every group has a chunk.
void divide_chunks(RowsStages &s, const Coordinates &at) {
    const int kv_tile = s.blocking.kv_tile, columns = s.stat_columns + s.value_entries;
    const bool splits = s.blocking.splits();
    const TileRange range = at.range(s.qt, s.b);
    const Expr length = at.formulas.inputs().seq_len_kv, piece = at.piece(s.sp, s.b), begin = piece * s.blocking.split_len;
    auto steps = [&](int tile) { return splits ? Expr(at.steps_of_split(tile)) : (length + tile - 1) / tile; };
    auto first_step = [&](int tile) { return piece * (splits ? at.steps_of_split(tile) : 0); };
    auto add = [&](const std::string &kind, int tile, const Expr &first_key, const Expr &count, bool masked) -> ChunkStages & {
        ChunkStages &chunk = s.chunks.emplace_back(kind);
        chunk.kv_tile = tile;
        chunk.first_key = first_key;
        chunk.masked = masked;
        chunk.domain = RDom(0, columns, 0, count, kind + "chunks");
        return chunk;
    };
    if (s.blocking.block_tiles || range.begin_some.defined() || at.formulas.logits().excludes_pairs()) {
        // Every chunk has keys that some rows may not see.
        const int tile = s.blocking.block_tiles ? kv_tile : s.blocking.masked_kv_tile, step = at.step(tile);
        ChunkStages &all = add(s.blocking.block_tiles ? "" : "masked_", tile, begin, steps(tile), true);
        all.domain.where(all.domain.y < (range.end_some + step - 1) / step - first_step(tile));
        if (range.begin_some.defined()) {
            // Memory of a chunk would get an index that is no constant from other bounds, and the loop would begin at key 0. Of a
            // remainder bounds inference knows only that it is not negative.
            const Expr first_key = has_other_bound_below(range.begin_some) ? range.begin_some % largest_length : range.begin_some;
            all.domain.where(all.domain.y >= first_key / step - first_step(tile));
        }
        return;
    }
    const int step = at.step(kv_tile);
    const Expr whole_chunks = splits ? Halide::clamp(range.end_all / step - first_step(kv_tile), 0, steps(kv_tile)) : range.end_all / step;
    ChunkStages &whole = add("whole_", kv_tile, begin, steps(kv_tile), false);
    whole.domain.where(whole.domain.y < whole_chunks);
    // From the first chunk that is not whole, as many keys as the rows of a tile can differ by, and no condition at all: what is too
    // much is excluded key by key.
    const int masked_tile = s.blocking.masked_kv_tile,
              most_keys = step - 1 + (at.formulas.visibility().rows_differ() ? at.queries_apart() : 0);
    const int most_steps = (most_keys + at.step(masked_tile) - 1) / at.step(masked_tile);
    ChunkStages &masked =
        add("masked_", masked_tile, begin + whole_chunks * step, min(most_steps, steps(kv_tile) * (kv_tile / masked_tile)), true);
    if (splits) { // and no key of the next split
        masked.domain.where(masked.domain.y < (steps(kv_tile) - whole_chunks) * (kv_tile / masked_tile));
    }
}

} // namespace

ChunkStages::ChunkStages(const std::string &kind)
    : key_rows(kind + "key_rows"), value_rows(kind + "value_rows"), key_chunk(kind + "key_chunk"), value_chunk(kind + "value_chunk"),
      dot(kind + "dot"), logits(kind + "logits"), row_max(kind + "row_max"), row_reference(kind + "row_reference"), probs(kind + "probs"),
      row_sum(kind + "row_sum"), chunk_acc(kind + "chunk_acc") {}

RowsStages rows_frame(const AttentionFormulas &formulas, const RowsBlocking &blocking) {
    RowsStages s;
    const Problem &p = formulas.problem();
    s.blocking = blocking;
    s.head_dim = p.head_dim;
    s.head_dim_v = p.head_dim_v;
    const int piece = blocking.vec * blocking.lanes;
    s.query_entries = padded(s.head_dim, piece) / blocking.lanes;
    s.value_entries = padded(s.head_dim_v, piece) / blocking.lanes;
    s.whole_pieces = s.head_dim % piece == 0 && s.head_dim_v % piece == 0;
    s.stat_columns = padded(num_stats, blocking.vec);
    Coordinates at{formulas, blocking};
    s.row_bounds.define(formulas, {s.r, s.g, s.qt, s.b}, at.query(at.row(s.r, s.g), s.qt), s.b);
    if (!blocking.block_tiles) {
        define_query(s, at);
    }
    divide_chunks(s, at);
    s.acc(s.x, s.r, s.l, s.g, s.qt, s.sp, s.h, s.b) = select(s.x <= reference_column, row_reference_floor, 0.0f);
    for (ChunkStages &chunk : s.chunks) {
        if (blocking.block_tiles) {
            define_block_scores(s, chunk, at);
            define_softmax(s, chunk, formulas, {s.qi, s.c, s.qt, s.sp, s.h, s.b});
            define_chunk_acc(s, chunk, at);
        } else {
            define_thread_scores(s, chunk, at);
            define_softmax(s, chunk, formulas, {s.r, s.c, s.l, s.g, s.qt, s.sp, s.h, s.b});
        }
        define_columns(s, chunk, at);
    }
    if (blocking.splits()) {
        define_partial(s, formulas);
    }
    return s;
}

int RowsStages::entry_count(int columns) const {
    return padded(columns, blocking.vec * blocking.lanes) / blocking.lanes;
}

Expr RowsStages::column(const Expr &entry, const Expr &lane) const {
    return entry_of(blocking, entry, lane);
}

void RowsStages::write(const AttentionOut &o, const AttentionFormulas &formulas, const Arguments &at, const Store &store) {
    Halide::Func out = o.func;
    if (blocking.splits()) {
        define_merge(*this, formulas, o);
        out(at(o.d, o.q)) = store(write_merged(*this, formulas, o));
        return;
    }
    const RowsBlocking &k = blocking;
    const int columns = o.columns, tile = k.tile_rows();
    const Expr seq_len_q = formulas.inputs().seq_len_q;
    written = RDom({{0, entry_count(columns)}, {0, k.rows}, {0, k.lanes}, {0, k.groups}, {0, (seq_len_q + tile - 1) / tile}}, "written");
    const Expr x_ = written[0], r_ = written[1], l_ = written[2], g_ = written[3], qt_ = written[4];
    const Expr column = this->column(x_, l_), row = qt_ * tile + g_ * k.rows + r_;
    written.where(column < columns);
    written.where(row < seq_len_q);
    auto own = [&](const Expr &x) { return acc(x, r_, l_, g_, qt_, 0, o.h, o.b); };
    const Expr reference = own(reference_column), sum = own(sum_column);
    // out = acc / row_sum
    Expr value = own(stat_columns + min(x_, value_entries - 1)) * formulas.softmax().out_factor(reference, sum, o.h);
    value = formulas.softmax().gated(value, sum, min(column, head_dim_v - 1), min(row, seq_len_q - 1), o.h, o.b);
    for (size_t i = 0; i < o.statistics.size(); i++) {
        value = select(column < head_dim_v + int(i), value, formulas.softmax().statistic(o.statistics[i], reference, sum, o.h));
    }
    value = store(value);
    out(at(o.d, o.q)) = Halide::undef(value.type());
    out(at(min(column, columns - 1), min(row, seq_len_q - 1))) = value;
}

std::vector<Halide::Func> RowsStages::funcs() const {
    std::vector<Halide::Func> all = row_bounds.funcs();
    if (!blocking.block_tiles) {
        all.push_back(query_rows);
    }
    for (const ChunkStages &c : chunks) {
        if (blocking.block_tiles) {
            all.push_back(c.key_chunk);
            if (c.value_chunk.defined()) {
                all.push_back(c.value_chunk);
            }
            all.push_back(c.chunk_acc);
        } else {
            all.insert(all.end(), {c.key_rows, c.value_rows});
        }
        all.insert(all.end(), {c.dot, c.logits, c.row_max, c.row_reference, c.probs, c.row_sum});
    }
    all.push_back(acc);
    if (blocking.splits()) {
        const std::vector<Halide::Func> merged = merge.funcs();
        all.insert(all.end(), merged.begin(), merged.end());
    }
    return all;
}

} // namespace polyhead::gen
