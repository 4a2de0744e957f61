// User expressions: the public functions for reading, values and bounds.
#include "expression.h"

#include "../written_order.h"
#include "program.h"

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

Expr in_kernel(const language::Node &node, const ExpressionScope &scope) {
    return UnsolvedSelects().mutate(in_written_order(language::value_of(node, scope), scope.score));
}

} // namespace

std::string Expression::parse(const std::string &text, const std::string &origin, Expression *expression) {
    auto program = std::make_shared<language::Program>();
    const std::string complaint = language::read_program(text, program.get());
    if (!complaint.empty()) {
        return origin + ":" + complaint;
    }
    expression->program_ = std::move(program);
    return "";
}

const std::vector<ExpressionTensor> &Expression::tensors() const {
    static const std::vector<ExpressionTensor> none;
    return program_ ? program_->tensors : none;
}

bool Expression::changes_score() const {
    return program_ && program_->score;
}

bool Expression::masks() const {
    return program_ && program_->mask;
}

Expr Expression::score(const ExpressionScope &scope) const {
    return changes_score() ? in_kernel(*program_->score, scope) : scope.score;
}

Expr Expression::mask(const ExpressionScope &scope) const {
    return masks() ? unsolved(in_kernel(*program_->mask, scope)) : Halide::Internal::const_true();
}

Expr Expression::keys_end(const ExpressionScope &scope) const {
    return masks() ? language::key_bounds(*program_->mask, scope).end : Expr();
}

Expr Expression::keys_begin(const ExpressionScope &scope) const {
    return masks() ? language::key_bounds(*program_->mask, scope).begin : Expr();
}

} // namespace polyhead::gen
