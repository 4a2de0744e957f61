// User expressions in a kernel: values that Halide computes in the order in which they are written.
#include "values.h"

#include "../../plan/language/program.h"
#include "../written_order.h"

namespace polyhead::gen {

using Halide::Expr;

namespace {

// If a stage is used inside a select, Halide 21 computes it only where the select needs it, when it can solve the condition for a
// coordinate: for q > 5 it requires queries 6 .. 37 of a tile of 32. A promise about the number 0 or 1 prevents this; it adds no code.
Expr unsolved(const Expr &condition) {
    return Halide::unsafe_promise_clamped(Halide::cast<int32_t>(condition), 0, 1) != 0;
}

class UnsolvedSelects : public Halide::Internal::IRGraphMutator {
    using IRGraphMutator::visit;
    Expr visit(const Halide::Internal::Select *op) override {
        return Halide::select(unsolved(mutate(op->condition)), mutate(op->true_value), mutate(op->false_value));
    }
};

Expr in_kernel(const Expr &value, const ExpressionScope &scope) {
    return UnsolvedSelects().mutate(in_written_order(value, scope.score));
}

} // namespace

Expr score_of(const Expression &expression, const ExpressionScope &scope) {
    return expression.changes_score() ? in_kernel(language::value_of(*expression.program()->score, scope), scope) : scope.score;
}

Expr score_slope(const Expression &expression, const ExpressionScope &scope) {
    return expression.changes_score() ? in_kernel(language::slope_of(*expression.program()->score, scope), scope) : Expr();
}

Expr derivative_by(const Expression &expression, const language::Node &read, const ExpressionScope &scope) {
    return in_kernel(language::derivative_of(*expression.program()->score, read, scope), scope);
}

Expr mask_of(const Expression &expression, const ExpressionScope &scope) {
    return expression.masks() ? unsolved(in_kernel(language::value_of(*expression.program()->mask, scope), scope))
                              : Halide::Internal::const_true();
}

KeyBounds key_bounds(const Expression &expression, const ExpressionScope &scope) {
    return expression.masks() ? language::key_bounds(*expression.program()->mask, scope) : KeyBounds();
}

} // namespace polyhead::gen
