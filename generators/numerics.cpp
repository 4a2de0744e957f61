// Numerics: exp2 by a polynomial and an integer shift or by an instruction, sums over lanes.
#include "numerics.h"

#include "bits.h"

namespace polyhead::gen {

using Halide::cast;
using Halide::Expr;

namespace {

// 2^n by writing the exponent field. n = -127 gives the bits of +0, so clamping there flushes to exactly 0.
Expr exponent_bits(const Expr &n) {
    return Halide::reinterpret<float>((n + 127) << 23);
}

// Coefficients of a minimax polynomial of 2^f on [-1, 0], the highest power first.
Expr exp2_polynomial(Expr x, const std::vector<float> &coefficients) {
    x = Halide::max(x, -127.0f);
    // Truncation, not floor: floor splits 512-bit vectors in two. The fraction is in (-1, 0].
    Expr whole = cast<int32_t>(x);
    Expr f = x - cast<float>(whole);
    Expr p = coefficients[0];
    for (size_t i = 1; i < coefficients.size(); i++) {
        p = p * f + coefficients[i];
    }
    return p * exponent_bits(whole);
}

// Largest relative error 2.0e-7.
const std::vector<float> degree_5 = {0.0009475536455f, 0.009210875561f, 0.05529960712f, 0.2401794895f, 0.6931432016f, 0.9999999452f};
// Largest relative error 7.5e-5, a fiftieth of the last place of bf16.
const std::vector<float> degree_3 = {0.03901226132f, 0.2300703617f, 0.6910207096f, 0.9999252186f};

std::function<Expr(Expr)> exp2_of(const std::vector<float> &coefficients) {
    return [&coefficients](const Expr &x) { return exp2_polynomial(x, coefficients); };
}

// The polynomial lies in [1/2, 1], where a unit in the last place of bf16 is 2^-8.
std::function<Expr(Expr)> exp2_to_cut_of(std::vector<float> coefficients) {
    coefficients.back() += 0x1p-9f;
    return [=](const Expr &x) { return exp2_polynomial(x, coefficients); };
}

// tanh |x| = (1 - t) / (1 + t) with t = 2^(-2 |x| log2 e). t - 1 is made without cancellation, so that small x keep their relative error.
Expr tanh_polynomial(const Expr &x) {
    // Beyond 9 tanh is 1 in f32.
    Expr power = Halide::min(Halide::abs(x), 10.0f) * -2.8853900817779268f;
    Expr whole = cast<int32_t>(power);
    Expr f = power - cast<float>(whole);
    // Degree-5 minimax of (2^f - 1) / f on [-1, 0], largest relative error 9e-9.
    Expr p = 0.0001145805581f;
    for (float c : {0.001290780026f, 0.009596276097f, 0.05549895391f, 0.2402260602f, 0.6931471825f}) {
        p = p * f + c;
    }
    // The sum below must not be used for small x: compilers may add 1 first, and then little is left.
    Expr scale = exponent_bits(whole), minus_one = Halide::select(whole == 0, p * f, scale * (p * f) + (scale - 1.0f));
    // Near 1 what is missing from 1 is the quotient, so that 1 - quotient is rounded once: a large softcap multiplies that error.
    Expr near_one = whole <= -2;
    Expr quotient = Halide::select(near_one, 2.0f * (scale * (p * f) + scale), -minus_one) / (2.0f + minus_one);
    Expr magnitude = Halide::select(near_one, 1.0f - quotient, quotient);
    return Halide::select(x < 0.0f, -magnitude, magnitude);
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

Expr no_lanes(const Expr &x, int /*lanes*/, int /*apart*/) {
    return x;
}

// Butterfly: every lane joins the same pairs in the same order.
std::function<Expr(Expr, int, int)> by_shuffles(const std::function<Expr(Expr, Expr)> &join) {
    return [=](Expr x, int lanes, int apart) {
        for (int step = 1; step < lanes; step *= 2) {
            x = join(x, pure_call("llvm.nvvm.shfl.sync.bfly.f32", {-1, x, step * apart, 31}));
        }
        return x;
    };
}

} // namespace

Numerics portable_numerics() {
    return {exp2_of(degree_5), exp2_to_cut_of(degree_5), pow2_integral, round_up_loose,
            tanh_polynomial,   product_of_halves,        no_lanes,      no_lanes};
}

Numerics cpu_numerics() {
    Numerics numerics = portable_numerics();
    numerics.multiply = product_of_64_bits;
    return numerics;
}

Numerics bf16_numerics() {
    Numerics numerics = cpu_numerics();
    numerics.exp2 = exp2_of(degree_3);
    numerics.exp2_to_cut = exp2_to_cut_of(degree_3);
    return numerics;
}

Numerics opencl_numerics() {
    // Overloaded in OpenCL C, so a float argument takes the float function.
    return {[](const Expr &x) { return pure_call("exp2", {x}); },
            nullptr,
            pow2_integral,
            round_up_loose,
            tanh_polynomial,
            product_of_64_bits,
            no_lanes,
            no_lanes};
}

Numerics cuda_numerics() {
    // Results below 2^-126 are flushed to 0.
    return {[](const Expr &x) { return pure_call("llvm.nvvm.ex2.approx.ftz.f", {x}); },
            nullptr,
            pow2_integral,
            round_up_loose,
            tanh_polynomial,
            product_of_64_bits,
            by_shuffles([](const Expr &a, const Expr &b) { return a + b; }),
            by_shuffles([](const Expr &a, const Expr &b) { return Halide::max(a, b); })};
}

Numerics cuda_warp_numerics() {
    Numerics numerics = cuda_numerics();
    numerics.larger = [](const Expr &a, const Expr &b) { return pure_call("llvm.nvvm.fmax.ftz.f", {a, b}); };
    numerics.max_over_lanes = by_shuffles(numerics.larger);
    numerics.bits_over_lanes = [](Expr bits, int lanes, int apart) {
        for (int step = 1; step < lanes; step *= 2) {
            const Expr other =
                pure_call("llvm.nvvm.shfl.sync.bfly.i32", {-1, Halide::reinterpret<int32_t>(bits), step * apart, 31}, Halide::Int(32));
            bits = bits | Halide::reinterpret<uint32_t>(other);
        }
        return bits;
    };
    numerics.round_up = [](const Expr &x) { return pure_call("llvm.nvvm.ceil.ftz.f", {x}); };
    return numerics;
}

} // namespace polyhead::gen
