// The formulas of attention, written once as Exprs over (b, h, q, kv). Frames evaluate them in their own coordinates.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "../contract/weight_layout.h"
#include "formulas/dropout.h"
#include "formulas/logit.h"
#include "formulas/operands.h"
#include "formulas/softmax.h"
#include "formulas/visibility.h"

namespace polyhead::gen {

enum class ScoreKind {
    scaled = POLYHEAD_SCALED_SCORES,
    capped = POLYHEAD_CAPPED_SCORES,
    logits = POLYHEAD_LOGITS,
    weights = POLYHEAD_WEIGHTS
};

// Each part answers for itself; what takes two of them stands here.
class AttentionFormulas {
public:
    using Expr = Halide::Expr;
    AttentionFormulas(const Problem &problem, const Expression &expression, const Numerics &numerics, AttentionInputs inputs)
        : AttentionFormulas(std::make_shared<const FormulaContext>(FormulaContext{problem, expression, numerics, std::move(inputs)})) {}

    // The same over other inputs.
    AttentionFormulas reading(AttentionInputs inputs) const {
        return {context_->problem, context_->expression, context_->numerics, std::move(inputs)};
    }

    const Problem &problem() const { return context_->problem; }
    const AttentionInputs &inputs() const { return context_->inputs; }
    const Numerics &numerics() const { return context_->numerics; }
    // Query heads of a key/value head. At least 1, so that what is divided by it needs no branch for 0.
    Expr group_size() const {
        return problem().free_group_size != 0 ? Halide::max(inputs().num_heads / inputs().num_kv_heads, 1)
                                              : Expr(contract::group_size_of(problem()));
    }

    const Rotation &rotation() const { return rotation_; }
    const Operands &operands() const { return operands_; }
    const Visibility &visibility() const { return visibility_; }
    const Logits &logits() const { return logits_; }
    const Softmax &softmax() const { return softmax_; }
    const Dropout &dropout() const { return dropout_; }

    // A score of this kind in natural units. Instead of a weight the prob relative to weight_reference.
    Expr score_of_kind(ScoreKind kind, const Expr &score, const Row &row, const Expr &kv, const Expr &h, const Expr &b,
                       const std::vector<Expr> &pairs, const Expr &reference) const;

private:
    explicit AttentionFormulas(const std::shared_ptr<const FormulaContext> &context)
        : context_(context), rotation_(context), operands_(context, rotation_), visibility_(context), logits_(context), softmax_(context),
          dropout_(context) {}

    std::shared_ptr<const FormulaContext> context_;
    Rotation rotation_;
    Operands operands_;
    Visibility visibility_;
    Logits logits_;
    Softmax softmax_;
    Dropout dropout_;
};

} // namespace polyhead::gen
