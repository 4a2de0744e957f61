// Scores as an output, from query, key and the statistics of the rows.
#include "score_output.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::Func;

ScoreOutputStages score_output(const AttentionFormulas &formulas, ScoreStage stage, bool mean, const RowStatistics &statistics,
                               const Func &result) {
    ScoreOutputStages s;
    const Problem &p = formulas.problem();
    const std::string of = mean ? "mean_" : "score_";
    s.mean = mean;
    s.head_dim = p.head_dim;
    s.num_heads = p.num_heads;
    s.query_rows = Func(of + "query_rows");
    s.key_lanes = Func(of + "key_lanes");
    s.dot = Func(of + "dot");
    s.of_head = Func(of + "of_head");
    s.result = result;
    const auto &[kv, q, h, b, d, hkv] = std::tie(s.kv, s.q, s.h, s.b, s.d, s.hkv);
    const AttentionInputs &in = formulas.inputs();
    const Expr query = Halide::min(q, in.seq_len_q - 1), key = Halide::min(kv, in.key_rows - 1);
    s.query_rows(d, q, h, b) = formulas.scaled_query(d, query, h, b);
    s.key_lanes(kv, d, hkv, b) = formulas.key(d, key, hkv, b);
    // dot = query . key, in the unit of scores
    s.rd = Halide::RDom(0, p.head_dim, "rd");
    s.dot(kv, q, h, b) = 0.0f;
    s.dot(kv, q, h, b) += s.query_rows(s.rd, q, h, b) * s.key_lanes(kv, s.rd, h / formulas.group_size(), b);
    std::vector<Expr> pairs;
    for (const PairTensor &tensor : formulas.pair_tensors()) {
        pairs.push_back(tensor.at(Halide::min(Halide::likely(kv), in.seq_len_kv - 1), query, h, b));
    }
    const Row row = {query, formulas.keys_begin(query, b), formulas.keys_end(query, b),
                     formulas.uses_position() ? formulas.position(query, b) : Expr()};
    const bool weights = stage == ScoreStage::weights;
    const Expr reference = weights ? statistics.weight_reference(query, h, b) : Expr(0.0f);
    const Expr factor = weights ? statistics.weight_factor(query, h, b) : Expr(0.0f);
    s.of_head(kv, q, h, b) = formulas.stage(stage, s.dot(kv, q, h, b), row, kv, h, b, pairs, reference, factor);
    if (mean) {
        s.rh = Halide::RDom(0, p.num_heads, "rh");
        s.result(kv, q, b) = 0.0f;
        s.result(kv, q, b) += s.of_head(kv, q, s.rh, b) * (1.0f / float(p.num_heads));
    } else {
        s.result(kv, q, h, b) = s.of_head(kv, q, h, b);
    }
    return s;
}

std::vector<Func> ScoreOutputStages::funcs() const {
    return {query_rows, key_lanes, dot, of_head};
}

} // namespace polyhead::gen
