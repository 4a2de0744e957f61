// Conversion of rows through f32, in pieces that stay in the L1 cache.
#include "convert.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../../contract/dtypes.h"
#include "../../runtime/memory/stored.h"

namespace polyhead::python {
namespace {

constexpr int64_t piece = 256;

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
    if (element == Element::f64) {
        return row(static_cast<const double *>(from), stride, to, 1, count, from_f64);
    }
    runtime::with_stored(int32_t(element), [&](auto stored) {
        row(static_cast<const decltype(stored) *>(from), stride, to, 1, count, runtime::as_float<decltype(stored)>);
    });
}

void row_from_f32(const float *from, void *to, Element element, int64_t stride, int64_t count) {
    if (element == Element::f64) {
        return row(from, 1, static_cast<double *>(to), stride, count, [](float x) { return double(x); });
    }
    runtime::with_stored(int32_t(element), [&](auto stored) {
        row(from, 1, static_cast<decltype(stored) *>(to), stride, count, runtime::as_stored<decltype(stored)>);
    });
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
    return element == Element::f64 || runtime::stores_floats(int32_t(element));
}

} // namespace

int element_bytes(Element element) {
    const int bytes = contract::dtype_bytes(int32_t(element));
    return bytes > 0 ? bytes : 8; // f64, i64
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
