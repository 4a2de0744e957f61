// From logits to probs, and how a row ends.
#include "softmax.h"

#include "infinity.h"
#include "logit.h"

namespace polyhead::gen {

using Halide::Expr;

Expr Softmax::natural_of(const Expr &logit) const {
    return in().natural_logits() ? logit : logit * ln_2;
}

Expr Softmax::reference(const Expr &row_max) const {
    return in().natural_logits() ? row_max : in().numerics.round_up(row_max);
}

Expr Softmax::exponent(const Expr &difference) const {
    return in().natural_logits() ? difference * log2_e : difference;
}

Expr Softmax::power(const Expr &difference) const {
    return in().numerics.exp2(exponent(difference));
}

Expr Softmax::power_to_cut(const Expr &difference) const {
    return in().numerics.exp2_to_cut(exponent(difference));
}

// An empty row has no logit that is not excluded, so any number will do.
Expr Softmax::reference_of(const Expr &lse) const {
    const Expr finite = Halide::select(storage_of(POLYHEAD_F32, false).is_minus_infinity(lse), 0.0f, lse);
    return in().natural_logits() ? finite : finite * log2_e;
}

Expr Softmax::weight(const Expr &logit, const Expr &reference) const {
    return Halide::select(Logits::excluded(logit), 0.0f, power(Halide::min(logit - reference, 0.0f)));
}

Expr Softmax::rescaling(const Expr &difference) const {
    // Polynomials differ from 1 by a unit in the last place: the result of a row would depend on how many chunks other rows see.
    return in().natural_logits() ? Halide::select(difference == 0.0f, 1.0f, power(difference)) : in().numerics.pow2(difference);
}

Expr Softmax::sink_logit(const Expr &h) const {
    const Expr given = in().element("sinks", {h}), finite = Halide::max(given, lowest_addend);
    return Halide::select(storage_of(POLYHEAD_F32, false).is_minus_infinity(given), excluded_logit,
                          in().natural_logits() ? finite : finite * log2_e);
}

Expr Softmax::sink_weight(const Expr &reference, const Expr &h) const {
    return weight(sink_logit(h), reference);
}

Softmax::Ending Softmax::ending(const Expr &reference, const Expr &row_sum, const Expr &h) const {
    if (problem().sinks == 0) {
        return {reference, 1.0f, row_sum};
    }
    const Expr sink = sink_logit(h);
    const Expr higher = Halide::max(reference, this->reference(sink));
    const Expr shrink = rescaling(reference - higher);
    return {higher, shrink, row_sum * shrink + power(sink - higher)};
}

Expr Softmax::lse(const Expr &reference, const Expr &row_sum, const Expr &h) const {
    // log() of a positive sum; the select decides emptiness, never the size of a logit.
    const Ending end = ending(reference, row_sum, h);
    return finite_or_minus_infinity(row_sum > 0.0f, natural_of(end.reference) + Halide::log(Halide::max(end.sum, 1e-37f)));
}

Expr Softmax::out_factor(const Expr &reference, const Expr &row_sum, const Expr &h, const Expr &exact_sum) const {
    const bool rescales = exact_sum.defined() && problem().sinks != 0; // to the share that the exact probs have beside the sink
    const Ending end = ending(reference, rescales ? exact_sum : row_sum, h);
    const Expr shrink = rescales ? end.shrink * exact_sum / Halide::max(row_sum, 1e-37f) : end.shrink;
    const Expr factor = Halide::select(row_sum > 0.0f, shrink / Halide::max(end.sum, 1e-37f), 0.0f);
    return problem().head_gate != 0 ? factor * in().element("head_gate", {h}) : factor;
}

// From an exponential that is at most 1. A number that is none stays one: comparisons alone would make 0 of it.
Expr Softmax::sigmoid(const Expr &x) const {
    const Expr power = in().numerics.exp2(Halide::abs(x) * -log2_e), bits = Halide::reinterpret<int32_t>(x);
    const Expr result = Halide::select(x >= 0.0f, 1.0f, power) / (1.0f + power);
    return Halide::reinterpret<float>(Halide::select(magnitude_bits(x) > infinity_bits, bits, Halide::reinterpret<int32_t>(result)));
}

Expr Softmax::gated(const Expr &value, const Expr &row_sum, const Expr &d, const Expr &q, const Expr &h, const Expr &b) const {
    if (problem().gate == POLYHEAD_NO_GATE) {
        return value;
    }
    return Halide::select(row_sum > 0.0f, value * sigmoid(gate(d, q, h, b)), 0.0f);
}

Expr Softmax::gate(const Expr &d, const Expr &q, const Expr &h, const Expr &b) const {
    return in().inputs.gate(problem().gate == POLYHEAD_GATE_OF_HEADS ? Expr(0) : d, q, h, b);
}

Expr Softmax::gates(const Expr &d, const Expr &q, const Expr &h, const Expr &b) const {
    const Expr of_head = problem().head_gate != 0 ? in().element("head_gate", {h}) : Expr(1.0f);
    return problem().gate != POLYHEAD_NO_GATE ? of_head * sigmoid(gate(d, q, h, b)) : of_head;
}

Expr Softmax::gate_slope(const Expr &d, const Expr &q, const Expr &h, const Expr &b) const {
    return sigmoid(-gate(d, q, h, b)); // 1 - sigmoid(gate) would be 0 from 17 on
}

Expr Softmax::weight_reference(const Expr &reference, const Expr &h) const {
    return ending(reference, 1.0f, h).reference;
}

Expr Softmax::weight_factor(const Expr &weight_reference, const Expr &row_sum, const Expr &h) const {
    return Halide::select(row_sum > 0.0f, 1.0f / Halide::max(ending(weight_reference, row_sum, h).sum, 1e-37f), 0.0f);
}

Expr Softmax::statistic(Statistic statistic, const Expr &reference, const Expr &row_sum, const Expr &h) const {
    return statistic == Statistic::lse ? lse(reference, row_sum, h) : weight_reference(reference, h);
}

} // namespace polyhead::gen
