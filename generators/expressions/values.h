// User expressions as Halide Exprs: the score, the mask and the bounds that follow from it.
#pragma once

#include <functional>
#include <vector>

#include <Halide.h>

#include "../../plan/language/expression.h"

namespace polyhead::gen {

namespace language {
struct Node;
}

// What an expression may mention. All Exprs are scalar in Halide's sense; frames vectorise them.
struct ExpressionScope {
    Halide::Expr score;                            // f32, natural units, after scale and softcap
    Halide::Expr b, h, q, kv, position;            // int32; position is p of the query
    Halide::Expr seq_len_q, seq_len_kv, kv_length; // int32
    // An element of a declared tensor, outermost index first: f32, int32 or bool.
    std::function<Halide::Expr(size_t tensor, const std::vector<Halide::Expr> &index)> element;
    std::function<Halide::Expr(Halide::Expr)> exp, tanh;                                        // of f32, as the machine computes them
    std::function<Halide::Expr(const std::vector<Halide::Expr> &seed_and_coordinates)> uniform; // of five int32: f32
};

Halide::Expr score_of(const Expression &expression, const ExpressionScope &scope); // f32; scope.score where the text has no score
// The derivative of score_of() by scope.score; undefined where the text has no score.
Halide::Expr score_slope(const Expression &expression, const ExpressionScope &scope);
// The derivative by an element that the score reads.
Halide::Expr derivative_by(const Expression &expression, const language::Node &read, const ExpressionScope &scope);
Halide::Expr mask_of(const Expression &expression, const ExpressionScope &scope); // bool: takes part; true where the text has no mask

// Block skipping. Keys from `begin` up to but not including `end` can take part in row (b, q), as far as the mask decides it; neither falls
// with q, either may lie outside of 0 .. seq_len_kv. Undefined Expr: no such bound can be derived. Derived from conjuncts of the mask that
// compare kv with a term a*q + c, where a >= 0 and c mentions neither q nor kv nor h nor score (numbers, b, lengths, tensors indexed by
// b); docs/guides/expressions.md has the list. score, h and kv of the scope are not read.
struct KeyBounds {
    Halide::Expr begin, end;
};
KeyBounds key_bounds(const Expression &expression, const ExpressionScope &scope);

namespace language {

// The value of a node; of what it mentions only must the scope be filled.
Halide::Expr value_of(const Node &node, const ExpressionScope &scope);
// Of a real node that no function of C++ gives: its derivative by the score.
Halide::Expr slope_of(const Node &node, const ExpressionScope &scope);
// By the value of a node that it uses.
Halide::Expr derivative_of(const Node &node, const Node &read, const ExpressionScope &scope);
KeyBounds key_bounds(const Node &mask, const ExpressionScope &scope);

} // namespace language
} // namespace polyhead::gen
