// How far an answer may lie from the float64 reference.
#ifndef POLYHEAD_INSTRUMENTS_TOLERANCE_H
#define POLYHEAD_INSTRUMENTS_TOLERANCE_H

#include <algorithm>
#include <cmath>
#include <map>

#include <polyhead/polyhead.h>

namespace polyhead::test {

// The largest error of the plain formula in a head. Under additive masks and biases the logits of one row may be a thousand times those of
// the next, and so may their errors: there rows share an error only with rows whose largest logit is like theirs, from a quarter of it to
// twice it (to the nearest power of two). Logits below 8 are all in one group: their errors are negligible next to the other terms.
class PlainErrors {
public:
    explicit PlainErrors(bool additive) : additive_(additive) {}
    void add(double logit, double error) {
        double &largest = largest_[level(logit)];
        largest = std::max(largest, error);
    }
    double near(double logit) const {
        double largest = 0;
        for (int below = 0; below <= 1; below++) {
            const auto found = largest_.find(level(logit) - below);
            largest = found == largest_.end() ? largest : std::max(largest, found->second);
        }
        return largest;
    }

private:
    int level(double logit) const { return additive_ && std::isfinite(logit) ? std::ilogb(std::max(8.0, std::abs(logit))) : 3; }

    bool additive_;
    std::map<int, double> largest_;
};

// err <= 1e-5 * max(1, max abs value) + 5e-6 * abs(ref) + 4x the error of the plain f32 formula on that head, see PlainErrors.
// max_value is taken over the values that the row attends to.
inline double f32_tolerance(double reference, double max_value, double plain_error) {
    return 1e-5 * std::max(1.0, max_value) + 5e-6 * std::abs(reference) + 4.0 * plain_error;
}

// Keys of int8: twice the error of the plain formula whose query is rounded to int8 likewise, beside what sums in f32 may err by.
inline double int8_tolerance(double reference, double max_value, double plain_error) {
    return f32_tolerance(reference, max_value, 0.0) + 2.0 * plain_error;
}

// For lse, scores and weights. A score is a dot product in f32 like any other, so it is held to the rule of out with values of size 1:
// the plain f32 formula says how large the errors of sums and modifiers are on that head, logits of 5e5 keep their relative error. A
// weight is what a value of size 1 would be multiplied by; its own error is that of out for such values.
inline double score_tolerance(double reference, double plain_error) {
    return f32_tolerance(reference, 1.0, plain_error);
}

// The largest error of the plain formula among like rows: in the storage type, and in f32.
struct PlainError {
    double in_storage, in_f32;
};

// Half a unit in the last place of 1.
inline double half_unit(int32_t dtype) {
    return dtype == POLYHEAD_F16 ? 0x1p-11 : 0x1p-8;
}

// For f16 and bf16: twice the error of the plain formula in that type on that head + 1e-5, where this error counts as at least half a unit
// in the last place of the reference, which rounding out alone may bring, and what rounding the probs of a row to nearest ordinarily brings
// (check_answer.cpp); and at most 1e-2 (f16) or 5e-2 (bf16) of max(1, abs(ref)). The whole is never less than an f32 kernel may err by.
// Where huge values cancel, the limit is never less than two roundings of a prob. It does not bind in a layer: with logits of some ten,
// rounded heads alone move out by more.
inline double tolerance_16_bit(int32_t dtype, double reference, double max_value, const PlainError &plain, bool rounds_heads) {
    const double of_out = reference == 0 ? 0 : std::ldexp(half_unit(dtype), std::ilogb(reference));
    const double rule = 2.0 * std::max(plain.in_storage, of_out) + 1e-5, of_prob = 2 * half_unit(dtype) * max_value;
    const double fixed = std::max(of_prob, (dtype == POLYHEAD_F16 ? 1e-2 : 5e-2) * std::max(1.0, std::abs(reference)));
    const double limit = rounds_heads && std::isfinite(plain.in_storage) ? rule : fixed;
    return std::max(f32_tolerance(reference, max_value, plain.in_f32), std::min(rule, limit));
}

// Gradients. largest: of the gradients of the head; the error of the plain formula counts as at least what roundings bring to first order.
inline double gradient_tolerance(double reference, double largest, double plain_error) {
    return f32_tolerance(reference, largest, plain_error);
}

// In 16 bits results are rounded, too: by half a unit in the last place of the reference.
inline double gradient_tolerance_16_bit(int32_t dtype, double reference, double largest, const PlainError &plain) {
    const double of_result = reference == 0 ? 0 : std::ldexp(half_unit(dtype), std::ilogb(reference));
    const double rule = 2.0 * std::max(plain.in_storage, of_result) + 1e-5 * std::max(1.0, largest);
    return std::max(rule, gradient_tolerance(reference, largest, plain.in_f32) + of_result);
}

// lse, scores and weights of a layer of 16-bit storage are f32, but made of rounded heads: twice the error of the formula that rounds them.
inline double rounded_heads_tolerance(double reference, double plain_error) {
    return f32_tolerance(reference, 1.0, 0.0) + 2.0 * plain_error;
}

// True when `got` is an acceptable answer. NaN is never one; the caller compares an infinite or zero-row reference exactly.
inline bool within(float got, double reference, double tolerance) {
    const double error = std::abs(static_cast<double>(got) - reference);
    return error <= tolerance; // false for NaN on either side
}

} // namespace polyhead::test
#endif
