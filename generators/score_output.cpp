// Scores as an output, from query, key and the references of the rows.
#include "score_output.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::Func;

ScoreOutputStages score_output(const AttentionFormulas &formulas, ScoreKind kind, bool mean, const WeightReference &reference, int lanes,
                               const Func &result) {
    ScoreOutputStages s;
    const Problem &p = formulas.problem();
    const std::string of = mean ? "mean_" : "score_";
    s.mean = mean;
    s.weights = kind == ScoreKind::weights;
    s.lanes = lanes;
    s.head_dim = p.head_dim;
    s.query_rows = Func(of + "query_rows");
    s.key_lanes = Func(of + "key_lanes");
    s.dot = Func(of + "dot");
    s.of_head = Func(of + "of_head");
    s.result = result;
    const auto &[kv, q, h, b, d, hkv, l] = std::tie(s.kv, s.q, s.h, s.b, s.d, s.hkv, s.l);
    const AttentionInputs &in = formulas.inputs();
    const Expr query = Halide::min(q, in.seq_len_q - 1), key = in.keys.row(kv);
    s.query_rows(d, q, h, b) = formulas.operands().scaled_query(d, q, h, b);
    s.key_lanes(kv, d, hkv, b) = formulas.operands().key(d, key, hkv, b);
    // dot = query . key, in the unit of scores
    s.rd = Halide::RDom(0, p.head_dim, "rd");
    s.dot(kv, q, h, b) = 0.0f;
    // Clamped here, or Halide 21 takes almost twice the rows: a block's first query and its length each have their largest value.
    s.dot(kv, q, h, b) += s.query_rows(s.rd, query, h, b) * s.key_lanes(kv, s.rd, h / formulas.group_size(), b);
    std::vector<Expr> pairs;
    for (const PairTensor &tensor : formulas.logits().pair_tensors()) {
        pairs.push_back(tensor.at(Halide::min(Halide::likely(kv), in.seq_len_kv - 1), query, h, b));
    }
    const Row row = {query, formulas.visibility().keys_begin(query, b), formulas.visibility().keys_end(query, b),
                     formulas.logits().uses_position() ? formulas.visibility().position(query, b) : Expr()};
    s.of_head(kv, q, h, b) =
        formulas.score_of_kind(kind, s.dot(kv, q, h, b), row, kv, h, b, pairs, s.weights ? reference(query, h, b) : Expr(0.0f));
    if (!s.weights) {
        s.result(kv, q, h, b) = s.of_head(kv, q, h, b);
        return s;
    }
    // weights = probs / their sum
    s.lane_sums = Func(of + "lane_sums");
    s.factor = Func(of + "factor");
    s.keys = Halide::RDom(0, (in.seq_len_kv + lanes - 1) / lanes, "keys");
    s.lane_sums(l, q, h, b) = 0.0f;
    s.lane_sums(l, q, h, b) += s.of_head(l + lanes * s.keys, q, h, b);
    s.rl = Halide::RDom(0, lanes, "rl");
    s.row_sum = Func(of + "row_sum");
    s.row_sum(q, h, b) = 0.0f;
    s.row_sum(q, h, b) += s.lane_sums(s.rl, q, h, b);
    s.factor(q, h, b) = formulas.softmax().weight_factor(reference(query, h, b), s.row_sum(q, h, b), h);
    if (mean) {
        s.rh = Halide::RDom(0, in.num_heads, "rh");
        s.result(kv, q, b) = 0.0f;
        const Expr share = p.num_heads > 0 ? Expr(1.0f / float(p.num_heads)) : 1.0f / Halide::cast<float>(in.num_heads);
        s.result(kv, q, b) += s.of_head(kv, q, s.rh, b) * s.factor(q, s.rh, b) * share;
    } else {
        s.result(kv, q, h, b) = s.of_head(kv, q, h, b) * s.factor(q, h, b);
    }
    return s;
}

std::vector<Func> ScoreOutputStages::funcs() const {
    return weights ? std::vector<Func>{query_rows, key_lanes, dot, of_head, lane_sums, row_sum, factor}
                   : std::vector<Func>{query_rows, key_lanes, dot, of_head};
}

} // namespace polyhead::gen
