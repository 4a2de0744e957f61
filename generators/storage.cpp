// Storage: conversions of 16-bit floats and bytes.
#include "storage.h"

#include <polyhead/c_api.h>

#include "bits.h"

namespace polyhead::gen {

using Halide::cast;
using Halide::Expr;

namespace {

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
