// The way back from rows of heads that attention read to the tensors that they were made of: rotation, then norm.
#pragma once

#include <optional>
#include <string>

#include "formulas.h"
#include "head_norms.h"

namespace polyhead::gen {

// Heads that share weight and bias of a norm: tokens of a batch row, heads of a token.
struct NormedHeads {
    Halide::Var token;
    Halide::Expr tokens, heads, batch;
};

// The gradient of a row of a head, made row by row where it is written.
struct HeadGradient {
    Halide::Var lane{"lane"}, d{"d"}, t{"t"}, h{"h"}, b{"b"};
    int head_dim = 0, rotary_dim = 0, lanes = 1;
    Halide::Func turned;         // (d, t, h, b): before the rotation; undefined where nothing is rotated
    Halide::RDom plain, rotated; // entries that are not rotated, undefined where all are; (part, pair)
    Halide::Func weighted;       // the same, times the weight of the norm; undefined without a norm, as those below
    Halide::RDom words, all_lanes;
    Halide::Func lane_products, products; // (lane, t, h, b), (t, h, b): sum of the gradient times what was normalised
    Halide::Func lane_sums, sums;         // the same of the gradient; of centred norms alone
    // Where weight and bias of the norm have gradients: (d, t, h, b): gradients of its results, of all tokens; (d, h, b): their sums over
    // the tokens, times what was normalised, and plain ones of centred norms.
    Halide::Func kept, weight_sums, bias_sums;
    Halide::RDom tokens;
    NormedHeads heads;
    // What is written where rows of gradients are made: those that are kept, or else `result`.
    Halide::Func written(const Halide::Func &result) const { return kept.defined() ? kept : result; }
    std::vector<Halide::Func> funcs() const; // producers first
};

// An entry of the gradient of a tensor, from that of the rows which attention read. rotated_by: rows of the tables for a token, empty where
// nothing is rotated; norm: null without one; given: an entry of the tensor; of_weights: null where the norm's weight has no gradient.
KeySource::Element gradient_of_given(const std::string &name, const KeySource::Element &of_rows, int head_dim, const Rotation &rotation,
                                     const std::function<std::vector<Halide::Expr>(Halide::Expr t, Halide::Expr b)> &rotated_by,
                                     const HeadNorm *norm, const KeySource::Element &given, const NormedHeads *of_weights,
                                     HeadGradient *stages);

} // namespace polyhead::gen
