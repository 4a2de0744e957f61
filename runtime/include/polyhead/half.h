// 16-bit floats as tensors store them. Conversions round to nearest, ties to even; subnormals, infinities and NaN as IEEE 754 has them.
#ifndef POLYHEAD_HALF_H
#define POLYHEAD_HALF_H

#include <cstdint>
#include <cstring>

namespace polyhead {

// The bits of a number, for programs that have no type of their own for it.
struct f16 {
    uint16_t bits;
};
struct bf16 {
    uint16_t bits;
};

namespace detail {
inline uint32_t bits_of(float x) noexcept {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline float float_of(uint32_t bits) noexcept {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}
} // namespace detail

// Without branches, so that loops over conversions become vector code.

inline float to_float(bf16 x) noexcept {
    return detail::float_of(uint32_t(x.bits) << 16);
}

inline bf16 to_bf16(float x) noexcept {
    const uint32_t bits = detail::bits_of(x);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const uint32_t quiet_nan = bits >> 16 | 0x40;
    return {static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quiet_nan : rounded)};
}

inline float to_float(f16 x) noexcept {
    const uint32_t magnitude = uint32_t(x.bits & 0x7fff) << 13;
    const float normal = detail::float_of(magnitude) * 0x1p112f; // the exponent's bias goes from 15 to 127; subnormals become normal
    const uint32_t special = magnitude | 0x7f800000;             // infinity and NaN
    const uint32_t bits = magnitude >= 0x0f800000 ? special : detail::bits_of(normal);
    return detail::float_of(bits | uint32_t(x.bits & 0x8000) << 16);
}

inline f16 to_f16(float x) noexcept {
    const uint32_t bits = detail::bits_of(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    const uint32_t normal = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
    // Adding 0.5 leaves the mantissa of a subnormal in the low bits, rounded to nearest even.
    const uint32_t subnormal = detail::bits_of(detail::float_of(magnitude) + 0.5f) - 0x3f000000;
    const uint32_t finite = magnitude < 0x38800000 ? subnormal : normal;
    const uint32_t large = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;
    return {static_cast<uint16_t>(sign | (magnitude >= 0x477ff000 ? large : finite))};
}

} // namespace polyhead
#endif
