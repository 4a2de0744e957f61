// User expressions: the door to reading, values and bounds.
#include "expression.h"

#include "program.h"

namespace polyhead::gen {

using Halide::Expr;

namespace {

// Halide 21 computes a stage only where a select that it stands in takes it, if it can solve the condition for a coordinate: of q > 5 it
// asks for queries 6 .. 37 of a tile of 32. A promise about the number 0 or 1 keeps it from solving, and is gone when code is made.
Expr unsolved(const Expr &condition) {
    return Halide::unsafe_promise_clamped(Halide::cast<int32_t>(condition), 0, 1) != 0;
}

class UnsolvedSelects : public Halide::Internal::IRMutator {
    using IRMutator::visit;
    Expr visit(const Halide::Internal::Select *op) override {
        return Halide::select(unsolved(mutate(op->condition)), mutate(op->true_value), mutate(op->false_value));
    }
};

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
    return changes_score() ? UnsolvedSelects().mutate(language::value_of(*program_->score, scope)) : scope.score;
}

Expr Expression::mask(const ExpressionScope &scope) const {
    return masks() ? unsolved(UnsolvedSelects().mutate(language::value_of(*program_->mask, scope))) : Halide::Internal::const_true();
}

Expr Expression::keys_end(const ExpressionScope &scope) const {
    return masks() ? language::key_bounds(*program_->mask, scope).end : Expr();
}

Expr Expression::keys_begin(const ExpressionScope &scope) const {
    return masks() ? language::key_bounds(*program_->mask, scope).begin : Expr();
}

} // namespace polyhead::gen
