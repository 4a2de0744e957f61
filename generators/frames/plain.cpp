// Frame "plain": attention as a textbook writes it.
#include "plain.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::max;
using Halide::RDom;

namespace {

// What a row sees of the keys; where all rows see all of them, there is nothing to compare.
void limit_keys(PlainStages &s, const AttentionFormulas &formulas) {
    s.keys = RDom(0, formulas.inputs().seq_len_kv, "keys");
    if (formulas.visibility().rows_differ() || formulas.problem().kv_lengths != 0 || formulas.problem().cache != 0) {
        s.keys.where(s.keys < formulas.visibility().keys_end(s.q, s.b));
    }
    if (formulas.visibility().has_begin()) {
        s.keys.where(s.keys >= formulas.visibility().keys_begin(s.q, s.b));
    }
}

void define_logits(PlainStages &s, const AttentionFormulas &formulas) {
    const auto &[d, q, kv, h, b] = std::tie(s.d, s.q, s.kv, s.h, s.b);
    s.entries = RDom(0, formulas.problem().head_dim, "entries");
    s.query_rows(d, q, h, b) = formulas.operands().scaled_query(d, q, h, b);
    s.key_columns(kv, d, h, b) = formulas.operands().key(d, kv, h, b); // h: of keys
    // scores = query . key
    s.scores(kv, q, h, b) = 0.0f;
    s.scores(kv, q, h, b) += s.query_rows(s.entries, q, h, b) * s.key_columns(kv, s.entries, h / formulas.group_size(), b);
    // logits = scores, modified, where single keys are excluded; ranges of keys end the loops below
    std::vector<Expr> pairs;
    for (const PairTensor &tensor : formulas.logits().pair_tensors()) {
        pairs.push_back(tensor.at(kv, q, h, b));
    }
    Row row{q, Expr(), Expr(), formulas.logits().uses_position() ? formulas.visibility().position(q, b) : Expr()};
    s.logits(kv, q, h, b) = formulas.logits().logit(s.scores(kv, q, h, b), row, kv, h, b, pairs, false);
}

} // namespace

PlainStages plain(const AttentionFormulas &formulas) {
    PlainStages s;
    const auto &[d, q, kv, h, b] = std::tie(s.d, s.q, s.kv, s.h, s.b);
    s.head_dim_v = formulas.problem().head_dim_v;
    limit_keys(s, formulas);
    define_logits(s, formulas);
    s.row_max(q, h, b) = row_reference_floor;
    s.row_max(q, h, b) = max(s.row_max(q, h, b), s.logits(s.keys, q, h, b));
    s.row_reference(q, h, b) = formulas.softmax().reference(s.row_max(q, h, b));
    s.probs(kv, q, h, b) = formulas.softmax().power(s.logits(kv, q, h, b) - s.row_reference(q, h, b));
    s.row_sum(q, h, b) = 0.0f;
    s.row_sum(q, h, b) += s.probs(s.keys, q, h, b);
    // acc = sum over keys of probs * value; a row must not use the value of a key that it does not see
    s.acc(d, q, h, b) = 0.0f;
    Expr value = formulas.inputs().keys.value(d, s.keys, h / formulas.group_size(), b);
    if (formulas.logits().excludes_pairs()) {
        value = Halide::select(Logits::excluded(s.logits(s.keys, q, h, b)), 0.0f, value);
    }
    s.acc(d, q, h, b) += s.probs(s.keys, q, h, b) * value;
    return s;
}

Expr PlainStages::out_of(const AttentionFormulas &formulas, const Expr &d, const Expr &q, const Expr &h, const Expr &b) const {
    return acc(d, q, h, b) * formulas.softmax().out_factor(reference_of(q, h, b), sum_of(q, h, b), h);
}

std::vector<Halide::Func> PlainStages::funcs() const {
    return {query_rows, key_columns, scores, logits, row_max, row_reference, probs, row_sum, acc};
}

} // namespace polyhead::gen
