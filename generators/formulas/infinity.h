// Infinities and the least of what is added, for logits and what is made of them.
#pragma once

#include <cstdint>

#include <Halide.h>

namespace polyhead::gen {

// Additive terms from here on are beyond any logit that matters; two of them and a score stay finite.
constexpr float lowest_addend = -1.7e38f;

// Infinities are made and found by their bits, because the default float mode assumes that none exist: a choice between floats, one of
// them infinite, would mean nothing.
inline Halide::Expr finite_or_minus_infinity(const Halide::Expr &finite, const Halide::Expr &value) {
    constexpr auto minus_infinity_bits = int32_t(0xff800000);
    return Halide::reinterpret<float>(Halide::select(finite, Halide::reinterpret<int32_t>(value), minus_infinity_bits));
}

// The bits of |x|: an integer that is infinity_bits where x is infinite, larger where it is NaN and less where it is finite.
constexpr int32_t infinity_bits = 0x7f800000;
inline Halide::Expr magnitude_bits(const Halide::Expr &x) {
    return Halide::reinterpret<int32_t>(x) & 0x7fffffff;
}

// By its bits, because a comparison of floats may be taken for true where one is NaN.
inline Halide::Expr is_zero(const Halide::Expr &x) {
    return magnitude_bits(x) == 0;
}

} // namespace polyhead::gen
