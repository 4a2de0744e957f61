// User expressions: the public functions for reading.
#include "expression.h"

#include "program.h"

namespace polyhead::gen {

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

bool Expression::has_slope() const {
    return !changes_score() || program_->score->op != language::Op::source;
}

bool Expression::masks() const {
    return program_ && program_->mask;
}

uint32_t Expression::facts() const {
    return program_ ? (program_->score ? language::facts_of(*program_->score, program_->tensors) : 0) |
                          (program_->mask ? language::facts_of(*program_->mask, program_->tensors) : 0)
                    : 0;
}

} // namespace polyhead::gen
