// Dense views of vectors, for small cases written by hand.
#ifndef POLYHEAD_INSTRUMENTS_DENSE_H
#define POLYHEAD_INSTRUMENTS_DENSE_H

#include <vector>

#include "../reference/reference.h"
#include "layouts.h"

namespace polyhead::test {

inline polyhead_tensor dense(const float *data, const std::vector<int64_t> &shape) {
    polyhead_tensor view{};
    view.data = const_cast<float *>(data); // inputs are never written through
    view.dtype = POLYHEAD_F32;
    view.rank = static_cast<int32_t>(shape.size());
    const std::vector<int64_t> stride = dense_strides(shape);
    for (size_t dim = 0; dim < shape.size(); dim++) {
        view.shape[dim] = shape[dim];
        view.stride[dim] = stride[dim];
    }
    return view;
}

inline polyhead_tensor dense(const std::vector<float> &data, const std::vector<int64_t> &shape) {
    return dense(data.data(), shape);
}

// Bytes of a boolean mask.
inline polyhead_tensor dense(const std::vector<uint8_t> &data, const std::vector<int64_t> &shape) {
    polyhead_tensor view = dense(static_cast<const float *>(nullptr), shape);
    view.data = const_cast<uint8_t *>(data.data());
    view.dtype = POLYHEAD_BOOL;
    return view;
}

inline polyhead_tensor dense(const std::vector<int8_t> &data, const std::vector<int64_t> &shape) {
    polyhead_tensor view = dense(static_cast<const float *>(nullptr), shape);
    view.data = const_cast<int8_t *>(data.data());
    view.dtype = POLYHEAD_I8;
    return view;
}

inline polyhead_tensor dense(const std::vector<int32_t> &data, const std::vector<int64_t> &shape) {
    polyhead_tensor view = dense(static_cast<const float *>(nullptr), shape);
    view.data = const_cast<int32_t *>(data.data());
    view.dtype = POLYHEAD_I32;
    return view;
}

inline polyhead_tensor dense(const std::vector<int32_t> &data) {
    return dense(data, {static_cast<int64_t>(data.size())});
}

// Arguments of an sdpa call on dense [B,H,T,d] tensors; out is not read by the reference.
inline polyhead_args sdpa_args(const Problem &p, int64_t batch, const std::vector<float> &query, const std::vector<float> &key,
                               const std::vector<float> &value) {
    polyhead_args args = polyhead_args_of(POLYHEAD_SDPA);
    const int64_t rows = static_cast<int64_t>(query.size()) / (batch * p.num_heads * p.head_dim);
    const int64_t keys = static_cast<int64_t>(key.size()) / (batch * p.num_kv_heads * p.head_dim);
    args.query = dense(query, {batch, p.num_heads, rows, p.head_dim});
    args.key = dense(key, {batch, p.num_kv_heads, keys, p.head_dim});
    args.value = dense(value, {batch, p.num_kv_heads, keys, p.head_dim_v});
    return args;
}

inline Answer<double> truth(const Problem &p, const polyhead_args &args, const polyhead_weight_tensors &weights = {}) {
    return evaluate<double>(p, args, weights, all_rows(p, args));
}

inline std::vector<float> normal_vector(Random &random, int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float &value : values) {
        value = random.normal();
    }
    return values;
}

} // namespace polyhead::test
#endif
