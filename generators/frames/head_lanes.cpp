// Frame "head lanes": attention of few queries, keys split into pieces that are merged at the end.
#include "head_lanes.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::max;
using Halide::min;
using Halide::RDom;
using Halide::select;

namespace {

struct Coordinates {
    const AttentionFormulas &formulas;
    HeadLanesBlocking blocking;

    Expr row(const Expr &r, const Expr &rt) const { return rt * blocking.row_tile + r; }
    // Rows beyond the last query repeat it.
    Expr query(const Expr &r, const Expr &rt) const { return min(row(r, rt) / formulas.group_size(), formulas.inputs().seq_len_q - 1); }
    Expr head(const Expr &r, const Expr &rt, const Expr &hkv) const {
        return hkv * formulas.group_size() + row(r, rt) % formulas.group_size();
    }
    // Keys that some row, and that every row of the tile sees.
    Expr visible_to_some(const Expr &rt, const Expr &b) const { return formulas.visible(query(blocking.row_tile - 1, rt), b); }
    Expr visible_to_all(const Expr &rt, const Expr &b) const { return formulas.visible(query(0, rt), b); }
    Expr key(const Expr &kk, const Expr &sp) const { return sp * blocking.split_len + kk; }
    Expr clamped_key(const Expr &kk, const Expr &sp) const { return min(key(kk, sp), formulas.inputs().key_rows - 1); }
};

// How many keys a row sees, as a Func (as in the frame "query lanes").
void define_visibility(HeadLanesStages &s, const Coordinates &at) {
    s.visible(s.r, s.rt, s.b) = at.formulas.visible(at.query(s.r, s.rt), s.b);
}

void define_logits(HeadLanesStages &s, const Coordinates &at) {
    const auto &[formulas, blocking] = at;
    const auto &[l, d, r, kk, sp, rt, hkv, b] = std::tie(s.l, s.d, s.r, s.kk, s.sp, s.rt, s.hkv, s.b);
    // query_rows = query * softmax_scale * log2 e
    s.query_rows(d, r, rt, hkv, b) = formulas.scaled_query(d, at.query(r, rt), at.head(r, rt, hkv), b);
    // scores = query_rows . key, first per lane, then over lanes
    s.rv = RDom(0, formulas.problem().head_dim / blocking.lanes, "rv");
    s.rl = RDom(0, blocking.lanes, "rl");
    Expr entry = l + blocking.lanes * s.rv;
    s.lane_scores(l, r, kk, sp, rt, hkv, b) = 0.0f;
    s.lane_scores(l, r, kk, sp, rt, hkv, b) +=
        s.query_rows(entry, r, rt, hkv, b) * formulas.inputs().key(entry, at.clamped_key(kk, sp), hkv, b);
    s.scores(r, kk, sp, rt, hkv, b) = 0.0f;
    s.scores(r, kk, sp, rt, hkv, b) += s.lane_scores(s.rl, r, kk, sp, rt, hkv, b);
    // logits = scores where the key is visible; keys that no row sees are not computed
    s.key_blocks = RDom(0, blocking.key_unroll, 0, blocking.split_len / blocking.key_unroll, "key_blocks");
    s.key_blocks.where(at.key(s.key_blocks.y * blocking.key_unroll, sp) < at.visible_to_some(rt, b));
    Expr key = s.key_blocks.x + blocking.key_unroll * s.key_blocks.y;
    s.logits(kk, r, sp, rt, hkv, b) = excluded_logit;
    s.logits(key, r, sp, rt, hkv, b) = AttentionFormulas::masked(s.scores(r, key, sp, rt, hkv, b), at.key(key, sp), s.visible(r, rt, b));
}

void define_partial(HeadLanesStages &s, const Coordinates &at, const Numerics &numerics) {
    const HeadLanesBlocking &blocking = at.blocking;
    const auto &[d, r, kk, sp, rt, hkv, b, x] = std::tie(s.d, s.r, s.kk, s.sp, s.rt, s.hkv, s.b, s.x);
    // row_max, row_reference, probs, row_sum: as in every frame, over all keys of the split (excluded ones are exactly 0)
    s.keys = RDom(0, blocking.split_len, "keys");
    s.row_max(r, sp, rt, hkv, b) = row_reference_floor;
    s.row_max(r, sp, rt, hkv, b) = max(s.row_max(r, sp, rt, hkv, b), s.logits(s.keys, r, sp, rt, hkv, b));
    s.row_reference(r, sp, rt, hkv, b) = numerics.round_up(s.row_max(r, sp, rt, hkv, b));
    s.probs(kk, r, sp, rt, hkv, b) = numerics.exp2(s.logits(kk, r, sp, rt, hkv, b) - s.row_reference(r, sp, rt, hkv, b));
    s.row_sum(r, sp, rt, hkv, b) = 0.0f;
    s.row_sum(r, sp, rt, hkv, b) += s.probs(s.keys, r, sp, rt, hkv, b);
    // acc = sum over keys of probs * value; a row never meets the value of a key that it does not see
    const AttentionInputs &in = at.formulas.inputs();
    const Expr column = d;
    auto product = [&](const Expr &key) { return s.probs(key, r, sp, rt, hkv, b) * in.value(column, at.clamped_key(key, sp), hkv, b); };
    s.value_keys = TileKeys(blocking.split_len, at.key(0, sp), at.visible_to_all(rt, b), at.visible_to_some(rt, b));
    s.acc(d, r, sp, rt, hkv, b) = 0.0f;
    s.acc(d, r, sp, rt, hkv, b) += product(s.value_keys.whole);
    if (s.causal) {
        const Expr key = s.value_keys.partial;
        s.acc(d, r, sp, rt, hkv, b) =
            AttentionFormulas::accumulate(s.acc(d, r, sp, rt, hkv, b), product(key), at.key(key, sp), s.visible(r, rt, b));
    }
    s.partial(x, r, sp, rt, hkv, b) = select(x < s.head_dim_v, Halide::likely(s.acc(min(x, s.head_dim_v - 1), r, sp, rt, hkv, b)), //
                                             x == s.head_dim_v, s.row_sum(r, sp, rt, hkv, b), s.row_reference(r, sp, rt, hkv, b));
}

} // namespace

HeadLanesStages head_lanes(const AttentionFormulas &formulas, const Numerics &numerics, const HeadLanesBlocking &blocking) {
    HeadLanesStages s;
    s.blocking = blocking;
    s.head_dim_v = formulas.problem().head_dim_v;
    s.group_size = formulas.group_size();
    s.causal = formulas.causal();
    Coordinates at{formulas, blocking};
    define_visibility(s, at);
    define_logits(s, at);
    define_partial(s, at, numerics);
    // merge: reference = max over splits, merged = sum over splits of 2^(row_reference - reference) * partial
    const auto &[r, rt, hkv, b, x] = std::tie(s.r, s.rt, s.hkv, s.b, s.x);
    s.splits = RDom(0, (formulas.inputs().seq_len_kv + blocking.split_len - 1) / blocking.split_len, "splits");
    s.splits.where(s.splits * blocking.split_len < at.visible_to_some(rt, b));
    Expr row_reference = s.partial(s.head_dim_v + 1, r, s.splits, rt, hkv, b);
    s.reference(r, rt, hkv, b) = row_reference_floor;
    s.reference(r, rt, hkv, b) = max(s.reference(r, rt, hkv, b), row_reference);
    s.merged(x, r, rt, hkv, b) = 0.0f;
    s.merged(x, r, rt, hkv, b) += numerics.pow2(row_reference - s.reference(r, rt, hkv, b)) * s.partial(x, r, s.splits, rt, hkv, b);
    return s;
}

namespace {

// Where row (q, h) lies.
struct Place {
    Expr r, rt, hkv;
    Place(const HeadLanesStages &s, const Expr &q, const Expr &h) {
        Expr row = q * s.group_size + h % s.group_size;
        r = row % s.blocking.row_tile;
        rt = row / s.blocking.row_tile;
        hkv = h / s.group_size;
    }
};

} // namespace

Expr HeadLanesStages::out(const Expr &column, const Expr &q, const Expr &h, const Expr &batch) const {
    Place at(*this, q, h);
    return merged(column, at.r, at.rt, at.hkv, batch) * AttentionFormulas::inverse_sum(merged(head_dim_v, at.r, at.rt, at.hkv, batch));
}

Expr HeadLanesStages::lse(const Expr &q, const Expr &h, const Expr &batch) const {
    Place at(*this, q, h);
    return AttentionFormulas::lse(reference(at.r, at.rt, at.hkv, batch), merged(head_dim_v, at.r, at.rt, at.hkv, batch));
}

} // namespace polyhead::gen
