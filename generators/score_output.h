// Scores as an output: [B,H,T_q,T_kv] of one kind, or the mean over heads of the weights. Computed once more from query and key, when
// rows know a reference for their probs, so that attention itself never keeps a matrix of scores. The sum that weights are divided by is of
// the same probs: frames may add up a score in another order, and a sum of other probs would be missed by the error of a logit.
#pragma once

#include "formulas.h"

namespace polyhead::gen {

// Lanes run along keys, as the output does.
struct ScoreOutputStages {
    Halide::Var kv{"kv"}, q{"q"}, h{"h"}, b{"b"}, d{"d"}, hkv{"hkv"}, l{"l"};
    Halide::RDom rd, rh, keys, rl;
    int head_dim, lanes;
    bool mean, weights;
    Halide::Func query_rows; // (d, q, h, b)
    Halide::Func key_lanes;  // (kv, d, hkv, b): keys side by side
    Halide::Func dot;        // (kv, q, h, b)
    Halide::Func of_head;    // (kv, q, h, b): the score; for weights the prob
    Halide::Func lane_sums;  // (l, q, h, b): sums of the probs of keys l, l + lanes, ...; where weights are made
    Halide::Func row_sum;    // (q, h, b)
    Halide::Func factor;     // (q, h, b): what makes probs weights
    Halide::Func result;     // the output: (kv, q, h, b), or the mean (kv, q, b)

    std::vector<Halide::Func> funcs() const; // without the output, producers first
};

// The reference of row q of head h, where a kind needs one.
using WeightReference = std::function<Halide::Expr(const Halide::Expr &q, const Halide::Expr &h, const Halide::Expr &b)>;

// mean: the mean over heads of the weights, into (kv, q, b); otherwise the score, into (kv, q, h, b). lanes: how many sums of a row's probs
// are kept side by side.
ScoreOutputStages score_output(const AttentionFormulas &formulas, ScoreKind kind, bool mean, const WeightReference &reference, int lanes,
                               const Halide::Func &result);

} // namespace polyhead::gen
