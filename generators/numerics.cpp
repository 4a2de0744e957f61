// Portable numerics: exp2 by a polynomial and an integer shift, with exact zero below the range.
#include "numerics.h"

namespace polyhead::gen {

using Halide::cast;
using Halide::Expr;

namespace {

// 2^n by writing the exponent field. n = -127 gives the bits of +0, so clamping there flushes to exactly 0.
Expr exponent_bits(const Expr &n) {
    return Halide::reinterpret<float>((n + 127) << 23);
}

Expr exp2_polynomial(Expr x) {
    x = Halide::max(x, -127.0f);
    // Truncation, not floor: floor splits 512-bit vectors in two. The fraction is in (-1, 0].
    Expr whole = cast<int32_t>(x);
    Expr f = x - cast<float>(whole);
    // Degree-5 minimax of 2^f on [-1, 0], largest relative error 2.0e-7.
    Expr p = 0.0009475536455f;
    for (float c : {0.009210875561f, 0.05529960712f, 0.2401794895f, 0.6931432016f, 0.9999999452f}) {
        p = p * f + c;
    }
    return p * exponent_bits(whole);
}

Expr pow2_integral(Expr n) {
    return exponent_bits(cast<int32_t>(Halide::max(n, -127.0f)));
}

Expr round_up_loose(Expr x) {
    // Beyond 2^23 a float is already integral; the clamp keeps the conversion defined.
    constexpr float all_integral = 8388608.0f;
    Expr whole = cast<float>(cast<int32_t>(Halide::clamp(x, -all_integral, all_integral)));
    return Halide::select(Halide::abs(x) < all_integral, whole + 1.0f, x);
}

} // namespace

Numerics portable_numerics() {
    return {exp2_polynomial, pow2_integral, round_up_loose};
}

} // namespace polyhead::gen
