// Floats to integers and scales.
#include "int8_cache.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace polyhead::test {

namespace {

// Entries that share a scale. Odd keys use the integer -128, too, which append() never writes.
float scale_of(const float *entries, int64_t count, int64_t key) {
    float largest = 0;
    for (int64_t i = 0; i < count; i++) {
        largest = std::max(largest, std::abs(entries[i]));
    }
    return largest / (key % 2 == 0 ? 127.0f : 128.0f);
}

void store(float *entries, int64_t count, float scale, int8_t *integers) {
    for (int64_t i = 0; i < count; i++) {
        integers[i] = scale > 0 ? static_cast<int8_t>(std::clamp(std::nearbyint(entries[i] / scale), -128.0f, 127.0f)) : int8_t(0);
        entries[i] = static_cast<float>(integers[i]) * scale;
    }
}

void store_poison(float *entries, int64_t count, float scale, int8_t *integers) {
    for (int64_t i = 0; i < count; i++) {
        integers[i] = i % 3 == 0 ? int8_t(-128) : int8_t(127);
        entries[i] = static_cast<float>(integers[i]) * scale;
    }
}

} // namespace

Int8Rows to_int8(Tensor &floats, const Int8Choice &choice) {
    const polyhead_tensor &view = floats.view;
    const std::vector<int64_t> shape(view.shape, view.shape + view.rank), stride(view.stride, view.stride + view.rank);
    const int64_t entries = shape[3], shared = choice.channels > 0 ? choice.channels : entries, each = entries / shared;
    Int8Rows made{
        make_tensor(DType::i8, shape, stride, choice.place),
        make_tensor(DType::f32, {shape[0], shape[1], shape[2], each}, head_strides(choice.layout, shape[1], shape[2], each), choice.place)};
    const polyhead_tensor &scales = made.scales.view;
    for_each_offset(view, [&](int64_t offset, int64_t b, int64_t h, int64_t n) {
        if (b > 0 && stride[0] == 0) { // the same rows again
            return;
        }
        float *row = static_cast<float *>(view.data) + offset;
        int8_t *integers = static_cast<int8_t *>(made.integers.view.data) + offset;
        float *scale = static_cast<float *>(scales.data) + b * scales.stride[0] + h * scales.stride[1] + n * scales.stride[2];
        const bool poisoned = std::any_of(row, row + entries, [](float x) { return !std::isfinite(x); });
        for (int64_t s = 0; s < each; s++) {
            if (poisoned) {
                scale[s] = choice.valid(b, n) ? 3e38f : std::numeric_limits<float>::quiet_NaN();
                store_poison(row + s * shared, shared, scale[s], integers + s * shared);
            } else {
                scale[s] = choice.scale > 0 ? choice.scale : scale_of(row + s * shared, shared, n);
                store(row + s * shared, shared, scale[s], integers + s * shared);
            }
        }
    });
    made.integers.memory.make_read_only();
    made.scales.memory.make_read_only();
    return made;
}

Tensor to_floats(const polyhead_tensor &integers, const polyhead_tensor &scales) {
    const std::vector<int64_t> shape(integers.shape, integers.shape + integers.rank);
    Tensor floats = make_tensor(DType::f32, shape, dense_strides(shape), Place::inside);
    for_each_offset(integers, [&](int64_t offset, int64_t b, int64_t h, int64_t n) {
        const int8_t *row = static_cast<const int8_t *>(integers.data) + offset;
        const float *scale = static_cast<const float *>(scales.data) + b * scales.stride[0] + h * scales.stride[1] + n * scales.stride[2];
        const polyhead_tensor &to = floats.view;
        float *target = static_cast<float *>(to.data) + b * to.stride[0] + h * to.stride[1] + n * to.stride[2];
        for (int64_t d = 0; d < shape[3]; d++) {
            target[d] = static_cast<float>(row[d]) * scale[d * scales.shape[3] / shape[3]];
        }
    });
    return floats;
}

Tensor in_steps(const polyhead_tensor &query) {
    const std::vector<int64_t> shape(query.shape, query.shape + query.rank);
    Tensor rounded = make_tensor(DType::f32, shape, dense_strides(shape), Place::inside);
    for_each_offset(query, [&](int64_t offset, int64_t b, int64_t h, int64_t q) {
        const float *row = static_cast<const float *>(query.data) + offset;
        const polyhead_tensor &to = rounded.view;
        float *target = static_cast<float *>(to.data) + b * to.stride[0] + h * to.stride[1] + q * to.stride[2];
        const float step = scale_of(row, shape[3], 0);
        for (int64_t d = 0; d < shape[3]; d++) {
            target[d] = step > 0 ? std::clamp(std::nearbyint(row[d] / step), -127.0f, 127.0f) * step : 0.0f;
        }
    });
    return rounded;
}

} // namespace polyhead::test
