// Frames "thread rows" and "block tiles": attention with a running softmax in columns that threads own.
#include "rows.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::max;
using Halide::min;
using Halide::RDom;
using Halide::select;

namespace {

enum Column { before_column, reference_column, sum_column, num_stats };

int padded(int count, int multiple) {
    return (count + multiple - 1) / multiple * multiple;
}

// Entry x of lane l: pieces of vec entries go round the lanes.
Expr entry_of(const RowsBlocking &k, const Expr &x, const Expr &l) {
    return x / k.vec * (k.vec * k.lanes) + l * k.vec + x % k.vec;
}

// Where the frame stands: clamped positions and the visibility of a tile's ends.
struct Coordinates {
    const AttentionFormulas &formulas;
    RowsBlocking blocking;

    int tile() const { return blocking.rows * blocking.groups; }
    Expr entry(const Expr &x, const Expr &l) const { return entry_of(blocking, x, l); }
    // Rows beyond the last query repeat it, so that they never ask for more keys than a real row.
    Expr query(const Expr &qi, const Expr &qt) const { return min(qt * tile() + qi, formulas.inputs().seq_len_q - 1); }
    Expr key(const Expr &kk, const Expr &c) const { return c * blocking.kv_tile + kk; }
    Expr clamped_key(const Expr &kk, const Expr &c) const { return min(key(kk, c), formulas.inputs().key_rows - 1); }
    // Keys that some row, and that every row of the tile sees.
    Expr visible_to_some(const Expr &qt, const Expr &b) const { return formulas.visible(query(tile() - 1, qt), b); }
    Expr visible_to_all(const Expr &qt, const Expr &b) const { return formulas.visible(query(0, qt), b); }
    Expr kv_head(const Expr &h) const { return h / formulas.group_size(); }
};

// logits = scores of visible keys. Chunks are whole here, so the end of the keys is told by the logit, causal or not.
Expr masked(const Expr &score, const Expr &key, const Expr &visible) {
    return select(key < visible, score, excluded_logit);
}

// The scores of a thread's own rows; lanes add up their parts of head_dim.
void define_thread_scores(RowsStages &s, const Coordinates &at, const Numerics &numerics) {
    const auto &[formulas, blocking] = at;
    const auto &in = formulas.inputs();
    const auto &[x, r, l, g, kk, c, qt, h, b] = std::tie(s.x, s.r, s.l, s.g, s.kk, s.c, s.qt, s.h, s.b);
    // query_rows = query * softmax_scale * log2 e, 0 beyond head_dim
    const Expr entry = at.entry(x, l);
    const Expr query = formulas.scaled_query(min(entry, s.head_dim - 1), at.query(g * blocking.rows + r, qt), h, b);
    const bool exact = s.query_entries * blocking.lanes == s.head_dim;
    s.query_rows(x, r, l, g, qt, h, b) = exact ? query : select(entry < s.head_dim, query, 0.0f);
    // dot = query_rows . key, a lane's part of it
    s.rd = RDom(0, s.query_entries, "rd");
    const Expr key_entry = at.entry(s.rd, l);
    Expr key = in.key(min(key_entry, s.head_dim - 1), at.clamped_key(kk, c), at.kv_head(h), b);
    key = exact ? key : select(key_entry < s.head_dim, key, 0.0f);
    s.dot(kk, r, c, l, g, qt, h, b) = 0.0f;
    s.dot(kk, r, c, l, g, qt, h, b) += s.query_rows(s.rd, r, l, g, qt, h, b) * key;
    const Expr score = numerics.sum_over_lanes(s.dot(kk, r, c, l, g, qt, h, b), blocking.lanes);
    s.logits(kk, r, c, l, g, qt, h, b) = masked(score, at.key(kk, c), s.visible(r, g, qt, b));
}

// The scores of a tile, from a chunk of keys that the block shares.
void define_block_scores(RowsStages &s, const Coordinates &at) {
    const auto &[formulas, blocking] = at;
    const auto &in = formulas.inputs();
    const auto &[qi, d, kk, c, qt, h, b] = std::tie(s.qi, s.d, s.kk, s.c, s.qt, s.h, s.b);
    s.key_chunk(d, kk, c, qt, h, b) = in.key(min(d, s.head_dim - 1), at.clamped_key(kk, c), at.kv_head(h), b);
    s.value_chunk(d, kk, c, qt, h, b) = in.value(min(d, s.head_dim_v - 1), at.clamped_key(kk, c), at.kv_head(h), b);
    s.rd = RDom(0, s.head_dim, "rd");
    s.dot(kk, qi, c, qt, h, b) = 0.0f;
    s.dot(kk, qi, c, qt, h, b) += formulas.scaled_query(s.rd, at.query(qi, qt), h, b) * s.key_chunk(s.rd, kk, c, qt, h, b);
    const Expr visible = s.visible(qi % blocking.rows, qi / blocking.rows, qt, b);
    s.logits(kk, qi, c, qt, h, b) = masked(s.dot(kk, qi, c, qt, h, b), at.key(kk, c), visible);
}

// row_max, row_reference, probs and row_sum of a chunk; `row` are the coordinates of logits after its key.
void define_softmax(RowsStages &s, const Numerics &numerics, const std::vector<Halide::Var> &row) {
    auto with = [&row](const Expr &key) {
        std::vector<Expr> args = {key};
        args.insert(args.end(), row.begin(), row.end());
        return args;
    };
    std::vector<Halide::Var> with_key = {s.kk};
    with_key.insert(with_key.end(), row.begin(), row.end());
    s.keys = RDom(0, s.blocking.kv_tile, "keys");
    // row_max = max over keys of logits; row_reference = an integer just above it, so that rescaling is exact
    s.row_max(row) = row_reference_floor;
    s.row_max(row) = max(s.row_max(row), s.logits(with(s.keys)));
    s.row_reference(row) = numerics.round_up(s.row_max(row));
    // probs = 2^(logits - row_reference)
    s.probs(with_key) = numerics.exp2(s.logits(with_key) - s.row_reference(row));
    s.row_sum(row) = 0.0f;
    s.row_sum(row) += s.probs(with(s.keys));
}

// acc of a chunk of keys that the block shares.
void define_chunk_acc(RowsStages &s, const Coordinates &at) {
    const RowsBlocking &k = at.blocking;
    const auto &[x, r, l, g, c, qt, h, b] = std::tie(s.x, s.r, s.l, s.g, s.c, s.qt, s.h, s.b);
    const Expr column = min(at.entry(x, l), s.head_dim_v - 1);
    auto product = [&](const Expr &kk) {
        return s.probs(kk, g * k.rows + r, c, qt, h, b) * s.value_chunk(column, kk, c, qt, h, b);
    };
    s.value_keys = TileKeys(k.kv_tile, at.key(0, c), at.visible_to_all(qt, b), at.visible_to_some(qt, b));
    s.chunk_acc(x, r, c, l, g, qt, h, b) = 0.0f;
    s.chunk_acc(x, r, c, l, g, qt, h, b) += product(s.value_keys.whole);
    if (s.causal) {
        const Expr key = s.value_keys.partial;
        s.chunk_acc(x, r, c, l, g, qt, h, b) = AttentionFormulas::accumulate(s.chunk_acc(x, r, c, l, g, qt, h, b), product(key),
                                                                             at.key(key, c), s.visible(r, g, qt, b));
    }
}

// The running softmax of a row over the chunks of `domain` (column, chunk). Its columns are visited in order: the reference before the
// chunk, the reference, then row_sum and the entries, which are rescaled from one to the other. `add` gives an entry after the chunk,
// from what it was (rescaled), the chunk's weight, and the chunk.
template <class Add> void define_columns(RowsStages &s, const Numerics &numerics, const RDom &domain, const Add &add) {
    const auto &[x, r, l, g, qt, h, b] = std::tie(s.x, s.r, s.l, s.g, s.qt, s.h, s.b);
    const Expr column = domain.x, c = domain.y, tile_row = g * s.blocking.rows + r;
    auto acc = [&](const Expr &at) { return s.acc(at, r, l, g, qt, h, b); };
    auto of_row = [&](const Halide::Func &f) { return s.blocking.staged ? f(tile_row, c, qt, h, b) : f(r, c, l, g, qt, h, b); };
    const Expr reference = acc(reference_column), rescale = numerics.pow2(acc(before_column) - reference);
    const Expr weight = numerics.pow2(of_row(s.row_reference) - reference);
    const Expr entry = add(acc(column) * rescale, weight, max(column - s.stat_columns, 0), c);
    s.acc(column, r, l, g, qt, h, b) =
        select(column == before_column, reference, column == reference_column, max(reference, of_row(s.row_reference)),
               column == sum_column, acc(sum_column) * rescale + of_row(s.row_sum) * weight, column < s.stat_columns, 0.0f, entry);
}

void define_acc(RowsStages &s, const Coordinates &at, const Numerics &numerics) {
    const auto &[formulas, blocking] = at;
    const auto &in = formulas.inputs();
    const RowsBlocking &k = blocking;
    const auto &[x, r, l, g, qt, h, b] = std::tie(s.x, s.r, s.l, s.g, s.qt, s.h, s.b);
    s.acc(x, r, l, g, qt, h, b) = select(x <= reference_column, row_reference_floor, 0.0f);
    const int columns = s.stat_columns + s.value_entries;
    const Expr chunks = (in.seq_len_kv + k.kv_tile - 1) / k.kv_tile;
    const Expr some = at.visible_to_some(qt, b), all = at.visible_to_all(qt, b);
    s.whole = RDom(0, columns, 0, chunks, "whole");
    if (k.staged) {
        define_chunk_acc(s, at);
        s.whole.where(s.whole.y * k.kv_tile < some);
        define_columns(s, numerics, s.whole, [&](const Expr &before, const Expr &weight, const Expr &entry, const Expr &c) {
            return before + weight * s.chunk_acc(entry, r, c, l, g, qt, h, b);
        });
        return;
    }
    // Chunks that all rows of the tile see, and those that only some do, where a row must not meet the values of the others.
    auto add = [&](bool is_whole) {
        return [&, is_whole](Expr sum, const Expr &weight, const Expr &entry, const Expr &c) {
            for (int kk = 0; kk < k.kv_tile; kk++) {
                const Expr value = in.value(min(at.entry(entry, l), s.head_dim_v - 1), at.clamped_key(kk, c), at.kv_head(h), b);
                const Expr product = s.probs(kk, r, c, l, g, qt, h, b) * weight * value;
                sum = is_whole ? sum + product : AttentionFormulas::accumulate(sum, product, at.key(kk, c), s.visible(r, g, qt, b));
            }
            return sum;
        };
    };
    s.whole.where((s.whole.y + 1) * k.kv_tile <= all);
    define_columns(s, numerics, s.whole, add(true));
    s.partial = RDom(0, columns, 0, chunks, "partial");
    s.partial.where((s.partial.y + 1) * k.kv_tile > all);
    s.partial.where(s.partial.y * k.kv_tile < some);
    define_columns(s, numerics, s.partial, add(false));
}

} // namespace

RowsStages rows_frame(const AttentionFormulas &formulas, const Numerics &numerics, const RowsBlocking &blocking) {
    RowsStages s;
    const Problem &p = formulas.problem();
    s.blocking = blocking;
    s.head_dim = p.head_dim;
    s.head_dim_v = p.head_dim_v;
    s.causal = formulas.causal();
    const int piece = blocking.vec * blocking.lanes;
    s.query_entries = padded(s.head_dim, piece) / blocking.lanes;
    s.value_entries = padded(s.head_dim_v, piece) / blocking.lanes;
    s.stat_columns = padded(num_stats, blocking.vec);
    Coordinates at{formulas, blocking};
    s.visible(s.r, s.g, s.qt, s.b) = formulas.visible(at.query(s.g * blocking.rows + s.r, s.qt), s.b);
    if (blocking.staged) {
        define_block_scores(s, at);
        define_softmax(s, numerics, {s.qi, s.c, s.qt, s.h, s.b});
    } else {
        define_thread_scores(s, at, numerics);
        define_softmax(s, numerics, {s.r, s.c, s.l, s.g, s.qt, s.h, s.b});
    }
    define_acc(s, at, numerics);
    return s;
}

void RowsStages::write(const AttentionOut &o, bool with_lse, const Expr &seq_len_q, const Arguments &at,
                       const std::function<Expr(Expr)> &store) {
    const RowsBlocking &k = blocking;
    const int columns = head_dim_v + int(with_lse), tile = k.rows * k.groups;
    written = RDom({{0, padded(columns, k.vec * k.lanes) / k.lanes}, {0, k.rows}, {0, k.lanes}, {0, k.groups}, {0, (seq_len_q + tile - 1) / tile}},
                   "written");
    const Expr x_ = written[0], r_ = written[1], l_ = written[2], g_ = written[3], qt_ = written[4];
    const Expr column = entry_of(k, x_, l_), row = qt_ * tile + g_ * k.rows + r_;
    written.where(column < columns);
    written.where(row < seq_len_q);
    auto own = [&](const Expr &x) { return acc(x, r_, l_, g_, qt_, o.h, o.b); };
    // out = acc / row_sum
    Expr value = own(stat_columns + min(x_, value_entries - 1)) * AttentionFormulas::inverse_sum(own(sum_column));
    if (with_lse) {
        value = select(column < head_dim_v, value, AttentionFormulas::lse(own(reference_column), own(sum_column)));
    }
    value = store(value);
    Halide::Func out = o.func;
    out(at(o.d, o.q)) = Halide::undef(value.type());
    out(at(min(column, columns - 1), min(row, seq_len_q - 1))) = value;
}

std::vector<Halide::Func> RowsStages::funcs() const {
    std::vector<Halide::Func> all = {visible, dot, logits, row_max, row_reference, probs, row_sum, acc};
    if (blocking.staged) {
        all.insert(all.begin(), {key_chunk, value_chunk, chunk_acc});
    } else {
        all.insert(all.begin(), query_rows);
    }
    return all;
}

} // namespace polyhead::gen
