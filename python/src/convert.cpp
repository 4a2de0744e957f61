// Conversion of rows through f32, in pieces that stay in the L1 cache.
#include "convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace polyhead::python {
namespace {

constexpr int64_t piece = 256;

uint32_t bits_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

float float_of(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// Without branches, so that loops over them become vector code.
float from_bf16(uint16_t half) {
    return float_of(uint32_t(half) << 16);
}

uint16_t to_bf16(float x) {
    const uint32_t bits = bits_of(x);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const uint32_t quiet_nan = bits >> 16 | 0x40;
    return uint16_t((bits & 0x7fffffff) > 0x7f800000 ? quiet_nan : rounded);
}

float from_f16(uint16_t half) {
    const uint32_t magnitude = uint32_t(half & 0x7fff) << 13;
    const float normal = float_of(magnitude) * 0x1p112f; // the exponent's bias goes from 15 to 127; subnormals become normal
    const uint32_t special = magnitude | 0x7f800000;     // infinity and NaN
    const uint32_t bits = magnitude >= 0x0f800000 ? special : bits_of(normal);
    return float_of(bits | uint32_t(half & 0x8000) << 16);
}

uint16_t to_f16(float x) {
    const uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    const uint32_t normal = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
    // Adding 0.5 leaves the mantissa of a subnormal in the low bits, rounded to nearest even.
    const uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000;
    const uint32_t finite = magnitude < 0x38800000 ? subnormal : normal;
    const uint32_t large = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;
    return uint16_t(sign | (magnitude >= 0x477ff000 ? large : finite));
}

float from_f64(double x) {
    constexpr double most = std::numeric_limits<float>::max();
    return std::isfinite(x) ? float(std::clamp(x, -most, most)) : float(x);
}

int32_t from_i64(int64_t x) {
    return int32_t(std::clamp<int64_t>(x, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()));
}

template <class From, class To, class Convert>
void row(const From *from, int64_t from_stride, To *to, int64_t to_stride, int64_t count, Convert one) {
    if (from_stride == 1 && to_stride == 1) {
        for (int64_t i = 0; i < count; ++i) {
            to[i] = one(from[i]);
        }
        return;
    }
    for (int64_t i = 0; i < count; ++i) {
        to[i * to_stride] = one(from[i * from_stride]);
    }
}

void row_to_f32(const void *from, Element element, int64_t stride, float *to, int64_t count) {
    switch (element) {
    case Element::f16:
        return row(static_cast<const uint16_t *>(from), stride, to, 1, count, from_f16);
    case Element::bf16:
        return row(static_cast<const uint16_t *>(from), stride, to, 1, count, from_bf16);
    case Element::f64:
        return row(static_cast<const double *>(from), stride, to, 1, count, from_f64);
    default:
        return row(static_cast<const float *>(from), stride, to, 1, count, [](float x) { return x; });
    }
}

void row_from_f32(const float *from, void *to, Element element, int64_t stride, int64_t count) {
    switch (element) {
    case Element::f16:
        return row(from, 1, static_cast<uint16_t *>(to), stride, count, to_f16);
    case Element::bf16:
        return row(from, 1, static_cast<uint16_t *>(to), stride, count, to_bf16);
    case Element::f64:
        return row(from, 1, static_cast<double *>(to), stride, count, [](float x) { return double(x); });
    default:
        return row(from, 1, static_cast<float *>(to), stride, count, [](float x) { return x; });
    }
}

void convert_row(const char *from, Element from_element, int64_t from_stride, char *to, Element to_element, int64_t to_stride,
                 int64_t count) {
    if (from_element == Element::i64) {
        row(reinterpret_cast<const int64_t *>(from), from_stride, reinterpret_cast<int32_t *>(to), to_stride, count, from_i64);
        return;
    }
    float between[piece];
    for (int64_t done = 0; done < count; done += piece) {
        const int64_t now = std::min(piece, count - done);
        row_to_f32(from + done * from_stride * element_bytes(from_element), from_element, from_stride, between, now);
        row_from_f32(between, to + done * to_stride * element_bytes(to_element), to_element, to_stride, now);
    }
}

void convert_dimension(const Strided &from, const Strided &to, int32_t dimension, char *source, char *target) {
    const int64_t count = from.shape[dimension];
    const int64_t from_stride = from.stride[dimension], to_stride = to.stride[dimension];
    if (dimension == from.rank - 1) {
        return convert_row(source, from.element, from_stride, target, to.element, to_stride, count);
    }
    for (int64_t i = 0; i < count; ++i) {
        convert_dimension(from, to, dimension + 1, source + i * from_stride * element_bytes(from.element),
                          target + i * to_stride * element_bytes(to.element));
    }
}

bool is_float(Element element) {
    return element == Element::f32 || element == Element::f16 || element == Element::bf16 || element == Element::f64;
}

} // namespace

int element_bytes(Element element) {
    switch (element) {
    case Element::f64:
    case Element::i64:
        return 8;
    case Element::f16:
    case Element::bf16:
        return 2;
    case Element::i8:
    case Element::boolean:
        return 1;
    default:
        return 4;
    }
}

bool converts(Element from, Element to) {
    return (is_float(from) && is_float(to)) || (from == Element::i64 && to == Element::i32);
}

void convert(const Strided &from, const Strided &to) {
    if (from.rank > 0) {
        convert_dimension(from, to, 0, static_cast<char *>(from.data), static_cast<char *>(to.data));
    }
}

} // namespace polyhead::python
