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
    Expr first_query(const Expr &rt) const { return query(0, rt); }
    Expr last_query(const Expr &rt) const { return query(blocking.row_tile - 1, rt); }
    TileRange range(const Expr &rt, const Expr &b) const { return {formulas, first_query(rt), last_query(rt), b}; }
    Expr key(const Expr &kk, const Expr &sp) const { return sp * blocking.split_len + kk; }
    Expr clamped_key(const Expr &kk, const Expr &sp) const { return min(key(kk, sp), formulas.inputs().key_rows - 1); }
};

// query_rows = query in the unit of scores; key_rows = keys; both rotated where the problem has it.
void define_query_and_key(HeadLanesStages &s, const Coordinates &at) {
    const auto &formulas = at.formulas;
    const auto &[d, r, kk, sp, rt, hkv, b] = std::tie(s.d, s.r, s.kk, s.sp, s.rt, s.hkv, s.b);
    const Expr q = at.query(r, rt), h = at.head(r, rt, hkv);
    s.query_rows(d, r, rt, hkv, b) = formulas.plain_query(d, q, h, b);
    if (!formulas.rotates()) {
        return;
    }
    s.rotary = RDom(0, 2, 0, formulas.rotary_dim() / 2, "rotary");
    const Expr part = s.rotary.x, pair = s.rotary.y, entry = formulas.rotary_entry(part, pair), key = at.clamped_key(kk, sp);
    s.query_rows(entry, r, rt, hkv, b) = formulas.rotated_query(part, pair, q, h, b);
    s.key_rows(d, kk, sp, rt, hkv, b) = formulas.inputs().key(d, key, hkv, b);
    s.key_rows(entry, kk, sp, rt, hkv, b) = formulas.rotated_key(part, pair, key, hkv, b);
}

void define_logits(HeadLanesStages &s, const Coordinates &at) {
    const auto &[formulas, blocking] = at;
    const auto &[l, r, kk, sp, rt, hkv, b] = std::tie(s.l, s.r, s.kk, s.sp, s.rt, s.hkv, s.b);
    // scores = query_rows . key, first per lane, then over lanes
    s.rv = RDom(0, formulas.problem().head_dim / blocking.lanes, "rv");
    s.rl = RDom(0, blocking.lanes, "rl");
    Expr entry = l + blocking.lanes * s.rv;
    const Expr key_entry =
        formulas.rotates() ? Expr(s.key_rows(entry, kk, sp, rt, hkv, b)) : formulas.inputs().key(entry, at.clamped_key(kk, sp), hkv, b);
    s.lane_scores(l, r, kk, sp, rt, hkv, b) = 0.0f;
    s.lane_scores(l, r, kk, sp, rt, hkv, b) += s.query_rows(entry, r, rt, hkv, b) * key_entry;
    s.scores(r, kk, sp, rt, hkv, b) = 0.0f;
    s.scores(r, kk, sp, rt, hkv, b) += s.lane_scores(s.rl, r, kk, sp, rt, hkv, b);
    // Keys that no row sees are not computed.
    s.key_blocks = RDom(0, blocking.key_unroll, 0, blocking.split_len / blocking.key_unroll, "key_blocks");
    const Expr block = at.key(s.key_blocks.y * blocking.key_unroll, sp);
    at.range(rt, b).limit(&s.key_blocks, block, block + blocking.key_unroll);
    Expr key = s.key_blocks.x + blocking.key_unroll * s.key_blocks.y;
    auto logit = [&](const Expr &score, const Expr &kk_) {
        const Expr existing = min(Halide::likely(at.key(kk_, sp)), formulas.inputs().seq_len_kv - 1), q = at.query(r, rt);
        std::vector<Expr> pairs;
        for (const PairTensor &tensor : formulas.pair_tensors()) {
            pairs.push_back(tensor.at(existing, q, at.head(r, rt, hkv), b));
        }
        return formulas.logit(score, s.row_facts.at({r, rt, b}, q), at.key(kk_, sp), at.head(r, rt, hkv), b, pairs, true);
    };
    // logits = scores, modified, where the row sees the key. What is more than a comparison goes along the keys, where masks lie.
    if (formulas.plain_logits()) {
        s.logits(kk, r, sp, rt, hkv, b) = excluded_logit;
        s.logits(key, r, sp, rt, hkv, b) = logit(s.scores(r, key, sp, rt, hkv, b), key);
        return;
    }
    s.row_scores(kk, r, sp, rt, hkv, b) = 0.0f;
    s.row_scores(key, r, sp, rt, hkv, b) = s.scores(r, key, sp, rt, hkv, b);
    s.logits(kk, r, sp, rt, hkv, b) = logit(s.row_scores(kk, r, sp, rt, hkv, b), kk);
}

void define_partial(HeadLanesStages &s, const Coordinates &at) {
    const auto &[formulas, blocking] = at;
    const auto &[d, r, kk, sp, rt, hkv, b, x] = std::tie(s.d, s.r, s.kk, s.sp, s.rt, s.hkv, s.b, s.x);
    // row_max, row_reference, probs, row_sum: as in every frame, over all keys of the split (excluded ones are exactly 0)
    s.keys = RDom(0, blocking.split_len, "keys");
    s.row_max(r, sp, rt, hkv, b) = row_reference_floor;
    s.row_max(r, sp, rt, hkv, b) = max(s.row_max(r, sp, rt, hkv, b), s.logits(s.keys, r, sp, rt, hkv, b));
    s.row_reference(r, sp, rt, hkv, b) = formulas.reference(s.row_max(r, sp, rt, hkv, b));
    s.probs(kk, r, sp, rt, hkv, b) = formulas.power(s.logits(kk, r, sp, rt, hkv, b) - s.row_reference(r, sp, rt, hkv, b));
    s.row_sum(r, sp, rt, hkv, b) = 0.0f;
    s.row_sum(r, sp, rt, hkv, b) += s.probs(s.keys, r, sp, rt, hkv, b);
    // acc = sum over keys of probs * value; a row never meets the value of a key that it does not see
    const AttentionInputs &in = formulas.inputs();
    const Expr column = d;
    // Where keys are excluded one by one, every key is looked at: reading the values is what takes time here.
    s.value_keys = TileKeys(formulas, blocking.split_len, at.key(0, sp), at.range(rt, b));
    s.acc(d, r, sp, rt, hkv, b) = 0.0f;
    for (const RDom *domain : s.value_keys.loops()) {
        const Expr key = *domain, value = in.value(column, at.clamped_key(key, sp), hkv, b);
        s.acc(d, r, sp, rt, hkv, b) = s.value_keys.accumulate(domain, s.acc(d, r, sp, rt, hkv, b), s.probs(key, r, sp, rt, hkv, b), value,
                                                              s.logits(key, r, sp, rt, hkv, b));
    }
    s.partial(x, r, sp, rt, hkv, b) = select(x < s.head_dim_v, Halide::likely(s.acc(min(x, s.head_dim_v - 1), r, sp, rt, hkv, b)), //
                                             x == s.head_dim_v, s.row_sum(r, sp, rt, hkv, b), s.row_reference(r, sp, rt, hkv, b));
}

} // namespace

HeadLanesStages head_lanes(const AttentionFormulas &formulas, const HeadLanesBlocking &blocking) {
    HeadLanesStages s;
    s.blocking = blocking;
    s.head_dim_v = formulas.problem().head_dim_v;
    s.group_size = formulas.group_size();
    s.rotary_dim = formulas.rotates() ? formulas.rotary_dim() : 0;
    Coordinates at{formulas, blocking};
    s.row_facts.define(formulas, {s.r, s.rt, s.b}, at.query(s.r, s.rt), s.b);
    define_query_and_key(s, at);
    define_logits(s, at);
    define_partial(s, at);
    // merge: reference = max over splits, merged = sum over splits of rescaling(row_reference - reference) * partial
    const auto &[r, rt, hkv, b, x] = std::tie(s.r, s.rt, s.hkv, s.b, s.x);
    s.splits = RDom(0, (formulas.inputs().seq_len_kv + blocking.split_len - 1) / blocking.split_len, "splits");
    at.range(rt, b).limit(&s.splits, s.splits * blocking.split_len, (s.splits + 1) * blocking.split_len);
    Expr row_reference = s.partial(s.head_dim_v + 1, r, s.splits, rt, hkv, b);
    s.reference(r, rt, hkv, b) = row_reference_floor;
    s.reference(r, rt, hkv, b) = max(s.reference(r, rt, hkv, b), row_reference);
    s.merged(x, r, rt, hkv, b) = 0.0f;
    s.merged(x, r, rt, hkv, b) += formulas.rescaling(row_reference - s.reference(r, rt, hkv, b)) * s.partial(x, r, s.splits, rt, hkv, b);
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

Expr HeadLanesStages::acc_of(const Expr &column, const Expr &q, const Expr &h, const Expr &batch) const {
    Place at(*this, q, h);
    return merged(column, at.r, at.rt, at.hkv, batch);
}

Expr HeadLanesStages::sum(const Expr &q, const Expr &h, const Expr &batch) const {
    return acc_of(head_dim_v, q, h, batch);
}

Expr HeadLanesStages::reference_of(const Expr &q, const Expr &h, const Expr &batch) const {
    Place at(*this, q, h);
    return reference(at.r, at.rt, at.hkv, batch);
}

std::vector<Halide::Func> HeadLanesStages::funcs() const {
    std::vector<Halide::Func> all = row_facts.funcs();
    for (const Halide::Func &f : {query_rows, key_rows, lane_scores, scores, row_scores, logits, row_max, row_reference, probs, row_sum,
                                  acc, partial, reference, merged}) {
        if (f.defined()) {
            all.push_back(f);
        }
    }
    return all;
}

} // namespace polyhead::gen
