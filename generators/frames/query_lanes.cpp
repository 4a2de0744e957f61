// Frame "query lanes": attention over a tile of queries, chunk by chunk of keys, with exact exclusion.
#include "query_lanes.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::max;
using Halide::min;
using Halide::RDom;
using Halide::select;
using Halide::undef;

namespace {

// Where the frame stands: clamped positions and the visibility of a tile's ends.
struct Coordinates {
    const AttentionFormulas &formulas;
    QueryLanesBlocking blocking;

    // Rows beyond the last query repeat it, so that they never ask for more keys than a real row.
    Expr query(const Expr &qi, const Expr &qt) const { return min(qt * blocking.q_tile + qi, formulas.inputs().seq_len_q - 1); }
    Expr key(const Expr &kk, const Expr &c) const { return c * blocking.kv_tile + kk; }
    Expr clamped_key(const Expr &kk, const Expr &c) const { return min(key(kk, c), formulas.inputs().key_rows - 1); }
    // Keys that some row, and that every row of the tile sees.
    Expr visible_to_some(const Expr &qt, const Expr &b) const { return formulas.visible(query(blocking.q_tile - 1, qt), b); }
    Expr visible_to_all(const Expr &qt, const Expr &b) const { return formulas.visible(query(0, qt), b); }
    Expr kv_head(const Expr &h) const { return h / formulas.group_size(); }
};

// How many keys a row sees, as a Func: the vector compares of causal read one row of numbers. The tile's bounds above stay
// expressions; as Funcs they would relax the loops (docs/schedules.md, section 6).
void define_visibility(QueryLanesStages &s, const Coordinates &at) {
    s.visible(s.qi, s.qt, s.b) = at.formulas.visible(at.query(s.qi, s.qt), s.b);
}

void define_scores(QueryLanesStages &s, const Coordinates &at) {
    const auto &[formulas, blocking] = at;
    const auto &in = formulas.inputs();
    const auto &[qi, d, kk, c, qt, h, b] = std::tie(s.qi, s.d, s.kk, s.c, s.qt, s.h, s.b);
    // query_tile = query * softmax_scale * log2 e, transposed: rows of the tile lie side by side
    s.query_tile(qi, d, qt, h, b) = formulas.scaled_query(d, at.query(qi, qt), h, b);
    // scores = query_tile . key
    s.rd = RDom(0, formulas.problem().head_dim, "rd");
    s.scores(qi, kk, c, qt, h, b) = 0.0f;
    s.scores(qi, kk, c, qt, h, b) += s.query_tile(qi, s.rd, qt, h, b) * in.key(s.rd, at.clamped_key(kk, c), at.kv_head(h), b);
    // logits = scores where the key is visible; blocks of keys that no row sees are not computed
    s.key_blocks = RDom(0, blocking.key_panel, 0, blocking.kv_tile / blocking.key_panel, "key_blocks");
    s.key_blocks.where(at.key(s.key_blocks.y * blocking.key_panel, c) < at.visible_to_some(qt, b));
    Expr key = s.key_blocks.x + blocking.key_panel * s.key_blocks.y;
    s.logits(qi, kk, c, qt, h, b) = undef<float>();
    s.logits(qi, key, c, qt, h, b) = formulas.logit(s.scores(qi, key, c, qt, h, b), at.key(key, c), s.visible(qi, qt, b));
}

void define_softmax(QueryLanesStages &s, const Coordinates &at, const Numerics &numerics) {
    const auto &blocking = at.blocking;
    const auto &[qi, kk, c, qt, h, b] = std::tie(s.qi, s.kk, s.c, s.qt, s.h, s.b);
    s.keys = RDom(0, blocking.kv_tile, "keys");
    s.keys.where(at.key(s.keys, c) < at.visible_to_some(qt, b));
    // row_max = max over keys of logits; row_reference = an integer just above it, so that rescaling is exact
    s.row_max(qi, c, qt, h, b) = row_reference_floor;
    s.row_max(qi, c, qt, h, b) = max(s.row_max(qi, c, qt, h, b), s.logits(qi, s.keys, c, qt, h, b));
    s.row_reference(qi, c, qt, h, b) = numerics.round_up(s.row_max(qi, c, qt, h, b));
    // probs = 2^(logits - row_reference)
    s.prob_blocks = RDom(0, blocking.key_panel, 0, blocking.kv_tile / blocking.key_panel, "prob_blocks");
    s.prob_blocks.where(at.key(s.prob_blocks.y * blocking.key_panel, c) < at.visible_to_some(qt, b));
    Expr key = s.prob_blocks.x + blocking.key_panel * s.prob_blocks.y;
    s.probs(qi, kk, c, qt, h, b) = undef<float>();
    s.probs(qi, key, c, qt, h, b) = numerics.exp2(s.logits(qi, key, c, qt, h, b) - s.row_reference(qi, c, qt, h, b));
    // row_sum = sum over keys of probs
    s.row_sum(qi, c, qt, h, b) = 0.0f;
    s.row_sum(qi, c, qt, h, b) += s.probs(qi, s.keys, c, qt, h, b);
}

void define_chunk_out(QueryLanesStages &s, const Coordinates &at) {
    const auto &[formulas, blocking] = at;
    const auto &in = formulas.inputs();
    const auto &[qi, d, c, qt, h, b] = std::tie(s.qi, s.d, s.c, s.qt, s.h, s.b);
    // acc = sum over keys of probs * value; the padding columns of the last panel repeat the last column
    Expr column = min(d, s.head_dim_v - 1);
    auto product = [&](const Expr &key) {
        return s.probs(qi, key, c, qt, h, b) * in.value(column, at.clamped_key(key, c), at.kv_head(h), b);
    };
    s.value_keys = TileKeys(blocking.kv_tile, at.key(0, c), at.visible_to_all(qt, b), at.visible_to_some(qt, b));
    s.acc(qi, d, c, qt, h, b) = 0.0f;
    s.acc(qi, d, c, qt, h, b) += product(s.value_keys.whole);
    if (s.causal) {
        const Expr key = s.value_keys.partial;
        s.acc(qi, d, c, qt, h, b) =
            AttentionFormulas::accumulate(s.acc(qi, d, c, qt, h, b), product(key), at.key(key, c), s.visible(qi, qt, b));
    }
    s.chunk_out(qi, d, c, qt, h, b) = s.acc(qi, d, c, qt, h, b);
}

void define_merge(QueryLanesStages &s, const Coordinates &at, const Numerics &numerics) {
    const auto &blocking = at.blocking;
    const auto &[qi, x, m, g, qt, h, b] = std::tie(s.qi, s.x, s.m, s.g, s.qt, s.h, s.b);
    const int sum_column = s.head_dim_v, reference_column = s.head_dim_v + 1;
    auto chunk = [&](const Expr &in_group) { return g * blocking.merge_group + in_group; };
    // partial = what a chunk leaves: acc, row_sum, row_reference
    s.group_chunks = RDom(0, blocking.merge_group, "group_chunks");
    s.group_chunks.where(at.key(0, chunk(s.group_chunks)) < at.visible_to_some(qt, b));
    const Expr rm = s.group_chunks, rc = chunk(rm);
    s.partial(qi, x, m, g, qt, h, b) = undef<float>();
    s.partial(qi, x, rm, g, qt, h, b) = select(x < s.head_dim_v, Halide::likely(s.chunk_out(qi, min(x, s.head_dim_v - 1), rc, qt, h, b)), //
                                               x == sum_column, s.row_sum(qi, rc, qt, h, b), s.row_reference(qi, rc, qt, h, b));
    // group: reference = max, weight = 2^(reference of chunk - reference of group), acc and row_sum weighted
    s.group_reference(qi, g, qt, h, b) = row_reference_floor;
    s.group_reference(qi, g, qt, h, b) = max(s.group_reference(qi, g, qt, h, b), s.partial(qi, reference_column, rm, g, qt, h, b));
    s.weight(qi, m, g, qt, h, b) = numerics.pow2(s.partial(qi, reference_column, m, g, qt, h, b) - s.group_reference(qi, g, qt, h, b));
    s.group_acc(qi, x, g, qt, h, b) = 0.0f;
    s.group_acc(qi, x, g, qt, h, b) += s.weight(qi, rm, g, qt, h, b) * s.partial(qi, x, rm, g, qt, h, b);
    if (s.single_group) {
        s.merged(qi, x, qt, h, b) = select(x < reference_column, Halide::likely(s.group_acc(qi, min(x, sum_column), 0, qt, h, b)),
                                           s.group_reference(qi, 0, qt, h, b));
        return;
    }
    // merged = groups one after another; the reference column is written last, so the others still see the old one
    const int group_keys = blocking.merge_group * blocking.kv_tile;
    s.merge_columns = RDom(0, s.head_dim_v + 2, 0, (at.formulas.inputs().seq_len_kv + group_keys - 1) / group_keys, "merge_columns");
    s.merge_columns.where(s.merge_columns.y * group_keys < at.visible_to_some(qt, b));
    const Expr rx = s.merge_columns.x, rg = s.merge_columns.y;
    s.merged(qi, x, qt, h, b) = select(x == reference_column, row_reference_floor, 0.0f);
    Expr before = s.merged(qi, reference_column, qt, h, b), added = s.group_reference(qi, rg, qt, h, b), now = max(before, added);
    s.merged(qi, rx, qt, h, b) = select(rx < reference_column,
                                        Halide::likely(s.merged(qi, rx, qt, h, b) * numerics.pow2(before - now) +
                                                       s.group_acc(qi, min(rx, sum_column), rg, qt, h, b) * numerics.pow2(added - now)),
                                        now);
}

} // namespace

QueryLanesStages query_lanes(const AttentionFormulas &formulas, const Numerics &numerics, const QueryLanesBlocking &blocking) {
    QueryLanesStages s;
    const Problem &p = formulas.problem();
    s.blocking = blocking;
    s.head_dim = p.head_dim;
    s.head_dim_v = p.head_dim_v;
    s.causal = formulas.causal();
    s.single_group = p.seq_len_kv > 0 && p.seq_len_kv <= blocking.kv_tile * blocking.merge_group;
    Coordinates at{formulas, blocking};
    define_visibility(s, at);
    define_scores(s, at);
    define_softmax(s, at, numerics);
    define_chunk_out(s, at);
    define_merge(s, at, numerics);
    // out = acc / row_sum
    s.inverse_sum(s.qi, s.qt, s.h, s.b) = AttentionFormulas::inverse_sum(s.merged(s.qi, s.head_dim_v, s.qt, s.h, s.b));
    s.normalised(s.qi, s.d, s.qt, s.h, s.b) = s.merged(s.qi, s.d, s.qt, s.h, s.b) * s.inverse_sum(s.qi, s.qt, s.h, s.b);
    return s;
}

Expr QueryLanesStages::out(const Expr &d, const Expr &q, const Expr &h, const Expr &b) const {
    return normalised(q % blocking.q_tile, d, q / blocking.q_tile, h, b);
}

Expr QueryLanesStages::lse(const Expr &q, const Expr &h, const Expr &b) const {
    const Expr qi_ = q % blocking.q_tile, qt_ = q / blocking.q_tile;
    return AttentionFormulas::lse(merged(qi_, head_dim_v + 1, qt_, h, b), merged(qi_, head_dim_v, qt_, h, b));
}

} // namespace polyhead::gen
