// User expressions: what they read.
#include <polyhead/c_api.h>

#include "expression.h"
#include "program.h"

namespace polyhead::gen {

using Halide::Expr;

namespace language {
namespace {

constexpr char batch_row[] = "b", key_length[] = "seq_len_kv";

bool is_batch_row(const Expr &index) {
    const auto *const variable = index.as<Halide::Internal::Variable>();
    return variable && variable->name == batch_row;
}

} // namespace

ExpressionScope scope_of_variables(const std::vector<ExpressionTensor> &tensors) {
    const auto variable = [](const char *name) { return Expr(Halide::Var(name)); };
    ExpressionScope scope{Halide::cast<float>(variable("score")),
                          variable(batch_row),
                          variable("h"),
                          variable("q"),
                          variable("kv"),
                          variable("p"),
                          variable("seq_len_q"),
                          variable(key_length),
                          variable("kv_length"),
                          nullptr,
                          [](const Expr &x) { return Halide::exp(x); },
                          [](const Expr &x) { return Halide::tanh(x); }};
    scope.element = [tensors](size_t i, std::vector<Expr> index) {
        const ExpressionTensor &tensor = tensors[i];
        for (size_t d = 0; d < index.size(); d++) { // that dimension is divided as the batch is
            index[d] = tensor.extents[d] == POLYHEAD_EXTENT_B && is_batch_row(index[d]) ? Expr(0) : index[d];
        }
        const Halide::Type type = tensor.dtype == POLYHEAD_F32   ? Halide::Type(Halide::Float(32))
                                  : tensor.dtype == POLYHEAD_I32 ? Halide::Type(Halide::Int(32))
                                                                 : Halide::Type(Halide::Bool());
        return Halide::Internal::Call::make(type, tensor.name, index, Halide::Internal::Call::PureExtern);
    };
    return scope;
}

} // namespace language

uint32_t Expression::facts() const {
    if (!program_) {
        return 0;
    }
    const ExpressionScope scope = language::scope_of_variables(tensors());
    const auto reads = [&](const char *name) {
        return (program_->score && Halide::Internal::expr_uses_var(language::value_of(*program_->score, scope), name)) ||
               (program_->mask && Halide::Internal::expr_uses_var(language::value_of(*program_->mask, scope), name));
    };
    return (reads(language::batch_row) ? POLYHEAD_EXPRESSION_BATCH_ROW : 0) |
           (reads(language::key_length) ? POLYHEAD_EXPRESSION_KEY_LENGTH : 0);
}

} // namespace polyhead::gen
