// Scores as an output: [B,H,T_q,T_kv] at one stage, or the mean over heads of the weights. Computed once more from query and key, when
// the statistics of the rows are known, so that attention itself never keeps a matrix of scores.
#pragma once

#include "formulas.h"

namespace polyhead::gen {

// A row's statistics behind the last key; empty where the stage needs none.
struct RowStatistics {
    std::function<Halide::Expr(Halide::Expr q, Halide::Expr h, Halide::Expr b)> weight_reference, weight_factor;
};

// Lanes run along keys, as the output does.
struct ScoreOutputStages {
    Halide::Var kv{"kv"}, q{"q"}, h{"h"}, b{"b"}, d{"d"}, hkv{"hkv"};
    Halide::RDom rd, rh;
    int head_dim, num_heads;
    bool mean;
    Halide::Func query_rows; // (d, q, h, b)
    Halide::Func key_lanes;  // (kv, d, hkv, b): keys side by side
    Halide::Func dot;        // (kv, q, h, b)
    Halide::Func of_head;    // (kv, q, h, b): the stage; where the mean over heads is asked for, before it is taken
    Halide::Func result;     // the output: (kv, q, h, b), or the mean (kv, q, b)

    std::vector<Halide::Func> funcs() const; // without the output, producers first
};

// mean: the mean over heads of the weights, into (kv, q, b); otherwise the stage, into (kv, q, h, b).
ScoreOutputStages score_output(const AttentionFormulas &formulas, ScoreStage stage, bool mean, const RowStatistics &statistics,
                               const Halide::Func &result);

} // namespace polyhead::gen
