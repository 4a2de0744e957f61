// The whole attention layer: projections, attention, output projection. Heads are split and merged by index, never by a copy.
#pragma once

#include <optional>

#include "formulas.h"
#include "linear.h"

namespace polyhead::gen {

// What the layer reads beside its row inputs.
struct LayerWeights {
    using Panel = std::function<Halide::Expr(Halide::Expr column, Halide::Expr k, Halide::Expr panel)>;
    using Bias = std::function<Halide::Expr(Halide::Expr column)>;
    Panel query, key, value, out;
    Bias query_bias, key_bias, value_bias, out_bias; // empty: none
};

// Input rows: entry k of row t of batch b, their width, and how many there are.
struct LayerRows {
    std::function<Halide::Expr(Halide::Expr k, Halide::Expr t, Halide::Expr b)> at;
    int width;
    Halide::Expr count;
};

// A projection and the Func it fills: panels of 16 columns, a head owns panels_per_head of them. In memory [B,panels,T,16]: what a
// tile of values reads is contiguous, and a register tile of the projection may span the panels of two heads.
struct HeadProjection {
    LinearStages linear;
    Halide::Var column{"column"}, t{"t"}, panel{"panel"}, b{"b"};
    Halide::Func heads; // (column, t, panel, b)
    int panels_per_head;

    Halide::Expr at(const Halide::Expr &d, const Halide::Expr &t, const Halide::Expr &h, const Halide::Expr &b) const;
};

// With `threads` the heads are written in the coordinates of threads.
HeadProjection project_heads(const std::string &name, const LayerRows &rows, const LayerWeights::Panel &weight,
                             const LayerWeights::Bias &bias, int head_dim, int num_heads, int reduction_block,
                             const std::optional<ThreadBlocking> &threads);

// The attention inputs that read projected heads instead of tensors.
void read_heads(AttentionInputs *inputs, const HeadProjection &query, const HeadProjection &key, const HeadProjection &value);

// out = context * W_O^T + bias, where context(d, h, t, b) is [B,T,H,d] in memory: the concat is only an index.
LinearStages project_out(const Problem &problem, const Halide::Func &context, const Halide::Expr &count, const LayerWeights &weights,
                         int reduction_block);

} // namespace polyhead::gen
