// Numerics: exp2 by a polynomial and an integer shift or by an instruction, sums over lanes, 16-bit storage.
#include "numerics.h"

#include <polyhead/c_api.h>

namespace polyhead::gen {

using Halide::cast;
using Halide::Expr;

namespace {

Expr pure_call(const char *function, const std::vector<Expr> &args, Halide::Type type = Halide::Float(32)) {
    return Halide::Internal::Call::make(type, function, args, Halide::Internal::Call::PureExtern);
}

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

Expr word(uint32_t value) {
    return Halide::Internal::make_const(Halide::UInt(32), value);
}

// Two 16-bit elements, or four bytes, as one word. Halide makes one wide load of neighbours that are joined like this, and one shuffle of
// two vectors.
Expr join_bits(const std::vector<Expr> &elements) {
    return Halide::Internal::Call::make(Halide::UInt(32), Halide::Internal::Call::concat_bits, elements,
                                        Halide::Internal::Call::PureIntrinsic);
}

Expr f32_of_bf16(const Expr &bits) {
    return Halide::reinterpret<float>(cast<uint32_t>(bits) << word(16));
}

Expr f32_of_f16(const Expr &bits) {
    Expr magnitude = cast<uint32_t>(bits) & word(0x7fff), sign = (cast<uint32_t>(bits) & word(0x8000)) << word(16);
    // Exponents of f16 are biased by 15, of f32 by 127. Subnormals are whole multiples of 2^-24.
    Expr normal = (magnitude << word(13)) + word((127 - 15) << 23), special = (magnitude << word(13)) | word(0x7f800000);
    Expr subnormal = Halide::reinterpret<uint32_t>(cast<float>(cast<int32_t>(magnitude)) * 5.9604644775390625e-8f);
    return Halide::reinterpret<float>(sign |
                                      Halide::select(magnitude < word(0x0400), subnormal, magnitude >= word(0x7c00), special, normal));
}

Expr bf16_of_f32(const Expr &value) {
    Expr bits = Halide::reinterpret<uint32_t>(value), upper = bits >> word(16);
    Expr rounded = (bits + word(0x7fff) + (upper & word(1))) >> word(16), quiet_nan = upper | word(0x40);
    return cast<uint16_t>(Halide::select((bits & word(0x7fffffff)) > word(0x7f800000), quiet_nan, rounded));
}

Expr f16_of_f32(const Expr &value) {
    Expr bits = Halide::reinterpret<uint32_t>(value), magnitude = bits & word(0x7fffffff), sign = (bits >> word(16)) & word(0x8000);
    Expr normal = (magnitude - word((127 - 15) << 23) + word(0x0fff) + ((magnitude >> word(13)) & word(1))) >> word(13);
    // Added to 0.5, whose last place is worth 2^-24, a smaller number is rounded to whole multiples of that, ties to even.
    Expr subnormal = Halide::reinterpret<uint32_t>(Halide::reinterpret<float>(magnitude) + 0.5f) - word(0x3f000000);
    constexpr uint32_t infinity = 0x7f800000, overflow = 0x477ff000 /* 65520 */, smallest_normal = 0x38800000 /* 2^-14 */;
    Expr half = Halide::select(magnitude > word(infinity), word(0x7e00), magnitude >= word(overflow), word(0x7c00),
                               magnitude < word(smallest_normal), subnormal, normal);
    return cast<uint16_t>(sign | half);
}

} // namespace

Numerics portable_numerics() {
    return {exp2_of(degree_5), exp2_to_cut_of(degree_5), pow2_integral, round_up_loose, tanh_polynomial, no_lanes, no_lanes};
}

Numerics bf16_numerics() {
    return {exp2_of(degree_3), exp2_to_cut_of(degree_3), pow2_integral, round_up_loose, tanh_polynomial, no_lanes, no_lanes};
}

Numerics opencl_numerics() {
    // Overloaded in OpenCL C, so a float argument takes the float function.
    return {
        [](const Expr &x) { return pure_call("exp2", {x}); }, nullptr, pow2_integral, round_up_loose, tanh_polynomial, no_lanes, no_lanes};
}

Numerics cuda_numerics() {
    // Results below 2^-126 are flushed to 0.
    return {[](const Expr &x) { return pure_call("llvm.nvvm.ex2.approx.ftz.f", {x}); },
            nullptr,
            pow2_integral,
            round_up_loose,
            tanh_polynomial,
            by_shuffles([](const Expr &a, const Expr &b) { return a + b; }),
            by_shuffles([](const Expr &a, const Expr &b) { return Halide::max(a, b); })};
}

Words float_words() {
    return {1,
            Halide::Float(32),
            Expr(1.0f),
            nullptr,
            [](const std::vector<Expr> &values) { return values[0]; },
            [](const std::vector<Expr> &values) { return values[0]; },
            [](const Expr &sum, const Expr &a, const Expr &b) { return sum + a * b; },
            [](const Expr &word, const std::vector<Expr> &dropped) { return Halide::select(dropped[0], 0.0f, word); }};
}

std::vector<Expr> floats_of_bf16_pair(const Expr &low, const Expr &high) {
    const Expr both = join_bits({low, high});
    return {Halide::reinterpret<float>(both << word(16)), Halide::reinterpret<float>(both & word(0xffff0000))};
}

Words bf16_pairs() {
    const auto join = join_bits;
    const Expr low = word(0xffff), high = word(0xffff0000);
    const auto cut = [=](const std::vector<Expr> &values) {
        return (Halide::reinterpret<uint32_t>(values[0]) >> word(16)) | (Halide::reinterpret<uint32_t>(values[1]) & high);
    };
    const auto round = [=](std::vector<Expr> values) {
        for (Expr &value : values) {
            const Expr bits = Halide::reinterpret<uint32_t>(value);
            value = Halide::reinterpret<float>(Halide::max(bits, bits + word(0x8000))); // NaN of all bits stays NaN
        }
        return cut(values);
    };
    return {2, Halide::UInt(32), word(0x3f803f80), join, cut, round,
            // Halide's runtime has the instruction under this name; a vector of calls becomes one.
            [](const Expr &sum, const Expr &a, const Expr &b) { return pure_call("dpbf16ps", {sum, a, b}); },
            [=](const Expr &word_, const std::vector<Expr> &dropped) {
                return word_ & Halide::select(dropped[0], high, word(0xffffffff)) & Halide::select(dropped[1], low, word(0xffffffff));
            }};
}

Expr ByteQuads::join(const std::vector<Expr> &elements) {
    return join_bits(elements);
}

Expr ByteQuads::repeated(uint8_t bits) {
    return word(bits * 0x01010101u);
}

// As dpbf16ps above.
Expr ByteQuads::add_products(const Expr &sum, const Expr &unsigned_bytes, const Expr &signed_bytes) {
    return pure_call("dpbusd", {sum, Halide::reinterpret<int32_t>(unsigned_bytes), Halide::reinterpret<int32_t>(signed_bytes)},
                     Halide::Int(32));
}

Expr Storage::is_minus_infinity(const Expr &element) const {
    const Halide::Type bits = Halide::Int(type.bits());
    return Halide::reinterpret(bits, element) == Halide::Internal::make_const(bits, minus_infinity);
}

Storage storage_of(int dtype, bool hardware_f16) {
    constexpr int32_t minus_infinite_half = int16_t(0xfc00);
    const Halide::Type bits = Halide::UInt(16), half = Halide::Float(16);
    switch (dtype) {
    case POLYHEAD_BF16:
        return {bits, f32_of_bf16, bf16_of_f32, int16_t(0xff80)};
    case POLYHEAD_F16:
        if (hardware_f16) {
            return {bits, [=](const Expr &x) { return cast<float>(Halide::reinterpret(half, x)); },
                    [=](const Expr &x) { return Halide::reinterpret(bits, Halide::cast(half, x)); }, minus_infinite_half};
        }
        return {bits, f32_of_f16, f16_of_f32, minus_infinite_half};
    case POLYHEAD_I8: // floats of any size are brought to integers by scales, outside of kernels
        return {Halide::UInt(8), [](const Expr &x) { return cast<float>(Halide::reinterpret(Halide::Int(8), x)); }, nullptr, 0};
    default:
        return {Halide::Float(32), [](const Expr &x) { return x; }, [](const Expr &x) { return x; }, int32_t(0xff800000)};
    }
}

} // namespace polyhead::gen
