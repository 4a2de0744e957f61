// What all parts of the formulas share: the problem, its expression, the inputs, and the unit of logits.
#pragma once

#include <memory>
#include <vector>

#include "../../contract/operations.h"
#include "../../plan/language/expression.h"
#include "../expressions/values.h"
#include "../numerics.h"
#include "inputs.h"

namespace polyhead::gen {

// Logits are in units of log2 e: one multiplication folded into the query makes every exponential a power of two. Where a score is
// changed on its way (softcap, an expression) nothing is saved by that, and one rounding is lost: those are in natural units. So are those
// of a backward call, whose lse is: to bring a large one into another unit would round it once more.
constexpr float log2_e = 1.4426950408889634f;
constexpr float ln_2 = 0.6931471805599453f;
// The facts of a row that logits need: it sees keys begin .. end - 1 at most; its position among the keys. Frames keep these with the
// row, so that they are computed once. q may lie beyond the last query in rows that are dropped.
struct Row {
    Halide::Expr q, begin, end, position;
};

struct FormulaContext {
    using Expr = Halide::Expr;

    Problem problem;
    Expression expression;
    Numerics numerics;
    AttentionInputs inputs;

    Expr number(const char *name) const { return inputs.number(name); }
    Expr element(const char *tensor, const std::vector<Expr> &index) const { return inputs.element(tensor, index); }
    // Keys of batch row b that exist: 0..seq_len_kv.
    Expr kv_length(const Expr &b) const { return inputs.kv_length(problem, b); }
    // Position of query q among the keys.
    Expr position(const Expr &q, const Expr &b) const;

    // Logits are in natural units, otherwise in units of log2 e.
    bool natural_logits() const { return problem.softcap != 0 || expression.changes_score() || contract::is_backward(problem); }
    bool has_expression() const { return expression.changes_score() || expression.masks(); }
    // What the expression reads of a pair.
    ExpressionScope scope(const Expr &natural_score, const Row &row, const Expr &kv, const Expr &h, const Expr &b) const;
};

// A part of the formulas.
class FormulaPart {
public:
    using Expr = Halide::Expr;
    explicit FormulaPart(std::shared_ptr<const FormulaContext> context) : context_(std::move(context)) {}

protected:
    const FormulaContext &in() const { return *context_; }
    const Problem &problem() const { return context_->problem; }

private:
    std::shared_ptr<const FormulaContext> context_;
};

} // namespace polyhead::gen
