// Number formats of PTX in plain C++: f16, bf16, flushing of subnormals, saturation.
#ifndef POLYHEAD_INSTRUMENTS_CUDA_DRIVER_NUMBERS_H
#define POLYHEAD_INSTRUMENTS_CUDA_DRIVER_NUMBERS_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace polyhead::cuda_driver {

template <class To, class From> inline To bits_as(const From &from) {
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    std::memcpy(&to, &from, sizeof(to));
    return to;
}

// .ftz: a subnormal number becomes zero of the same sign.
inline float flushed(float x) {
    const uint32_t bits = bits_as<uint32_t>(x);
    return (bits & 0x7f800000u) == 0 ? bits_as<float>(bits & 0x80000000u) : x;
}
inline double flushed(double x) {
    return x;
}

// .sat of a float: clamped to [0, 1], NaN becomes 0.
inline float saturated(float x) {
    return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}

inline float half_to_float(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16, exponent = (half >> 10) & 31u, fraction = half & 1023u;
    if (exponent == 31) {
        return bits_as<float>(sign | 0x7f800000u | (fraction << 13));
    }
    if (exponent == 0) {
        const float magnitude = static_cast<float>(fraction) * 0x1p-24f; // exact
        return sign ? -magnitude : magnitude;
    }
    return bits_as<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

// Nearest, ties to even; overflow becomes infinity.
inline uint16_t double_to_half(double x) {
    const uint16_t sign = std::signbit(x) ? 0x8000u : 0;
    const double magnitude = std::fabs(x);
    if (std::isnan(x)) {
        return 0x7fffu; // the NaN that the hardware makes
    }
    if (magnitude >= 65520.0) {
        return sign | 0x7c00u;
    }
    if (magnitude < 0x1p-14) {
        return sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24)); // 1024 is the smallest normal number
    }
    int exponent = std::ilogb(magnitude);
    const double units = std::nearbyint(std::ldexp(magnitude, 10 - exponent));               // 1024 to 2048
    return static_cast<uint16_t>(sign | ((exponent + 14) * 1024 + static_cast<int>(units))); // a carry moves into the exponent
}
inline uint16_t float_to_half(float x) {
    return double_to_half(x);
}

inline float bfloat_to_float(uint16_t x) {
    return bits_as<float>(static_cast<uint32_t>(x) << 16);
}

inline uint16_t float_to_bfloat(float x) {
    const uint32_t bits = bits_as<uint32_t>(x);
    if (std::isnan(x)) {
        return 0x7fffu;
    }
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// a * b + c of f16 with one rounding: the product is exact in double, the sum is rounded to odd before it becomes f16.
inline uint16_t half_fma(uint16_t a, uint16_t b, uint16_t c) {
    const double product = static_cast<double>(half_to_float(a)) * half_to_float(b), addend = half_to_float(c);
    const double sum = product + addend;
    const double part = sum - product;
    const double error = (product - (sum - part)) + (addend - part);
    if (std::isfinite(sum) && error != 0 && (bits_as<uint64_t>(sum) & 1u) == 0) {
        return double_to_half(
            std::nextafter(sum, error > 0 ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity()));
    }
    return double_to_half(sum);
}

} // namespace polyhead::cuda_driver
#endif
