// Norms of query, key and value: a factor of each head of a token, and heads that are read through it.
#pragma once

#include <string>
#include <vector>

#include "formulas/inputs.h"

namespace polyhead::gen {

// x -> (x - mean) * factor * weight + bias over the entries of a head, or of all heads of a token.
struct HeadNorm {
    enum class Of { query, key, value } of = Of::query;
    bool together = false; // all heads of a token are one
    int lanes = 1;         // partial sums side by side
    int width = 0;         // of a head
    bool centred = false;
    Halide::Var lane{"lane"}, d{"d"}, t{"t"}, h{"h"}, b{"b"}; // h: 0 where they are together
    Halide::RDom entries;                                     // (vector, head)
    Halide::RDom all_lanes;
    Halide::Func lane_sums, sum, mean;          // (lane, t, h, b), (t, h, b), (t, h, b): of centred ones alone
    Halide::Func lane_squares, squares, factor; // the same
    Halide::Func weight, bias;                  // (d, h): undefined where there are none
    Halide::Expr tokens, heads;                 // of a call: heads of all batch rows

    std::vector<Halide::Func> funcs() const; // producers first
};

// Lets attention read normalised heads, as floats, instead of the heads of `in`. key_rows: tokens whose keys are read. Appends a norm for
// each of query, key and value that has one.
void normalise_heads(const Problem &problem, int most_lanes, const Halide::Expr &key_rows, AttentionInputs *in,
                     std::vector<HeadNorm> *norms);

} // namespace polyhead::gen
