// Bits of floats, and between float and the 16-bit storage types: round to nearest, ties to even; subnormals, infinities and NaN as IEEE
// 754 has them.
#ifndef POLYHEAD_INSTRUMENTS_HALF_H
#define POLYHEAD_INSTRUMENTS_HALF_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include <polyhead/polyhead.h>

#include "../../contract/dtypes.h"

namespace polyhead::test {

inline uint32_t float_bits(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float bits_float(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// NaN have any bits: scores of poisoned keys may be one, whose bits mean nothing.
inline bool same_bits(const std::vector<float> &a, const std::vector<float> &b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
               return float_bits(x) == float_bits(y) || (std::isnan(x) && std::isnan(y));
           });
}

inline float from_bf16(uint16_t bits) {
    return bits_float(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t to_bf16(float value) {
    const uint32_t bits = float_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return static_cast<uint16_t>((bits >> 16) | 0x40u); // a NaN whose low half alone says so must not become infinite
    }
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float from_f16(uint16_t bits) {
    const uint32_t sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 0x1fu, mantissa = bits & 0x3ffu;
    if (exponent == 0) {
        const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
        return sign != 0 ? -magnitude : magnitude;
    }
    return bits_float(sign | (exponent == 31 ? 0x7f800000u : (exponent + 112u) << 23) | mantissa << 13);
}

inline uint16_t to_f16(float value) {
    const uint32_t bits = float_bits(value), magnitude = bits & 0x7fffffffu;
    const uint32_t sign = (bits >> 16) & 0x8000u;
    if (magnitude > 0x7f800000u) {
        return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    }
    if (magnitude >= 0x477ff000u) { // half way between 65504 and 65536, and beyond
        return static_cast<uint16_t>(sign | 0x7c00u);
    }
    if (magnitude < 0x38800000u) { // below 2^-14: adding 0.5 lets the FPU round to a multiple of 2^-24
        return static_cast<uint16_t>(sign | (float_bits(bits_float(magnitude) + 0.5f) - 0x3f000000u));
    }
    return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13));
}

// Bytes of one element of a tensor.
inline int64_t dtype_bytes(int32_t dtype) {
    return contract::dtype_bytes(dtype);
}

inline bool is_16_bit(int32_t dtype) {
    return dtype == POLYHEAD_F16 || dtype == POLYHEAD_BF16;
}

inline uint16_t to_storage_bits(float value, int32_t dtype) {
    return dtype == POLYHEAD_F16 ? to_f16(value) : to_bf16(value);
}

inline float from_storage_bits(uint16_t bits, int32_t dtype) {
    return dtype == POLYHEAD_F16 ? from_f16(bits) : from_bf16(bits);
}

// The nearest value that the storage type has; f32 keeps every float.
inline float round_to(float value, int32_t dtype) {
    return is_16_bit(dtype) ? from_storage_bits(to_storage_bits(value, dtype), dtype) : value;
}

} // namespace polyhead::test
#endif
