// Between floats and 16-bit storage types: to nearest, ties to even; subnormals, infinities and NaN as IEEE 754 has them. Header only.
#ifndef POLYHEAD_RUNTIME_HALF_H
#define POLYHEAD_RUNTIME_HALF_H

#include <cstdint>
#include <cstring>

namespace polyhead::runtime {

inline uint32_t bits_of_float(float x) noexcept {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float float_of_bits(uint32_t bits) noexcept {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// All without branches, so that loops over them become vector code.

inline float from_bf16(uint16_t half) noexcept {
    return float_of_bits(uint32_t(half) << 16);
}

inline uint16_t to_bf16(float x) noexcept {
    const uint32_t bits = bits_of_float(x);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const uint32_t quiet_nan = bits >> 16 | 0x40;
    return uint16_t((bits & 0x7fffffff) > 0x7f800000 ? quiet_nan : rounded);
}

inline float from_f16(uint16_t half) noexcept {
    const uint32_t magnitude = uint32_t(half & 0x7fff) << 13;
    const float normal = float_of_bits(magnitude) * 0x1p112f; // the exponent's bias goes from 15 to 127; subnormals become normal
    const uint32_t special = magnitude | 0x7f800000;          // infinity and NaN
    const uint32_t bits = magnitude >= 0x0f800000 ? special : bits_of_float(normal);
    return float_of_bits(bits | uint32_t(half & 0x8000) << 16);
}

inline uint16_t to_f16(float x) noexcept {
    const uint32_t bits = bits_of_float(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    const uint32_t normal = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
    // Adding 0.5 leaves the mantissa of a subnormal in the low bits, rounded to nearest even.
    const uint32_t subnormal = bits_of_float(float_of_bits(magnitude) + 0.5f) - 0x3f000000;
    const uint32_t finite = magnitude < 0x38800000 ? subnormal : normal;
    const uint32_t large = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;
    return uint16_t(sign | (magnitude >= 0x477ff000 ? large : finite));
}

} // namespace polyhead::runtime
#endif
