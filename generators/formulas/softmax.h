// From logits to probs, and how a row ends.
#pragma once

#include "context.h"

namespace polyhead::gen {

// What a row leaves beside its result.
enum class Statistic { lse, weight_reference };

class Softmax : public FormulaPart {
public:
    using FormulaPart::FormulaPart;

    Expr natural_of(const Expr &logit) const; // a logit, or a reference, in natural units
    // What the probs of a chunk are relative to, from its largest logit: in units of log2 e an integer above it, so that rescaling is
    // exact, in natural units the logit itself.
    Expr reference(const Expr &row_max) const;
    bool has_integer_references() const { return !in().natural_logits(); }
    // The prob of a logit <= 0, relative to a reference; exactly 0 where the key is excluded.
    Expr power(const Expr &difference) const;
    // The same for LaneProduct::cut, which then rounds it to nearest.
    Expr power_to_cut(const Expr &difference) const;
    // The factor from one reference to a higher one, from their difference; exactly 1 for 0.
    Expr rescaling(const Expr &difference) const;

    // Of a backward call, whose lse is given: what weights are relative to, and the weight of a logit; 0 where the key is excluded.
    Expr reference_of(const Expr &lse) const;
    Expr weight(const Expr &logit, const Expr &reference) const;

    // How a row ends, from its reference exponent and sum. With a sink the reference may move up.
    // Natural log-sum-exp; -inf for an empty row.
    Expr lse(const Expr &reference, const Expr &row_sum, const Expr &h) const;
    // out = acc * this; 0 for an empty row. exact_sum: of the probs that row_sum sums after they were cut; undefined where they were not.
    Expr out_factor(const Expr &reference, const Expr &row_sum, const Expr &h, const Expr &exact_sum = {}) const;
    // An entry of out, from acc times its factor: the gate of a row or an entry comes last. An empty row is 0, whatever its gate.
    Expr gated(const Expr &value, const Expr &row_sum, const Expr &d, const Expr &q, const Expr &h, const Expr &b) const;
    // Of a backward call: the product of all gates of an entry, and the slope of a gate's sigmoid divided by its value.
    bool has_gates() const { return problem().gate != POLYHEAD_NO_GATE || problem().head_gate != 0; }
    Expr gates(const Expr &d, const Expr &q, const Expr &h, const Expr &b) const;
    Expr gate_slope(const Expr &d, const Expr &q, const Expr &h, const Expr &b) const;
    // The weight of the sink beside a row's keys; 0 where there is none.
    Expr sink_weight(const Expr &reference, const Expr &h) const;
    // weight = prob * weight_factor, where probs are relative to weight_reference and row_sum is their sum.
    Expr weight_reference(const Expr &reference, const Expr &h) const;
    Expr weight_factor(const Expr &weight_reference, const Expr &row_sum, const Expr &h) const;
    Expr statistic(Statistic statistic, const Expr &reference, const Expr &row_sum, const Expr &h) const;

private:
    struct Ending {
        Expr reference, shrink, sum; // the new reference, 2^(old - new), the sum under the new one
    };
    Expr exponent(const Expr &difference) const; // of 2, for a difference of logits
    Expr sigmoid(const Expr &x) const;
    Expr gate(const Expr &d, const Expr &q, const Expr &h, const Expr &b) const; // its logit
    Expr sink_logit(const Expr &h) const;                                        // excluded_logit where there is none
    Ending ending(const Expr &reference, const Expr &row_sum, const Expr &h) const;
};

} // namespace polyhead::gen
