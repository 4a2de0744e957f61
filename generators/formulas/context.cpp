// Positions, and what an expression reads.
#include "context.h"

namespace polyhead::gen {

using Halide::Expr;

Expr FormulaContext::position(const Expr &q, const Expr &b) const {
    const Expr aligned = q + number("from_end") * (kv_length(b) - inputs.seq_len_q);
    return problem.position_offsets ? aligned + element("position_offsets", {b}) : aligned;
}

ExpressionScope FormulaContext::scope(const Expr &natural_score, const Row &row, const Expr &kv, const Expr &h, const Expr &b) const {
    ExpressionScope s;
    s.score = natural_score;
    s.b = b;
    s.h = h;
    s.q = row.q;
    s.kv = kv;
    s.position = has_expression() ? position(row.q, b) : Expr(0); // an expression of q, along which tensors are loaded in vectors
    s.seq_len_q = inputs.seq_len_q;
    s.seq_len_kv = inputs.seq_len_kv;
    s.kv_length = has_expression() ? kv_length(b) : Expr(0);
    s.element = inputs.expression_element;
    s.exp = [](const Expr &x) { return Halide::exp(x); };
    s.tanh = numerics.tanh;
    s.uniform = [multiply = numerics.multiply](const std::vector<Expr> &x) { return uniform(multiply, x); };
    return s;
}

} // namespace polyhead::gen
