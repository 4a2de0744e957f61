// Strides of the layouts, and tensors made with them.
#include "layouts.h"

#include <algorithm>

namespace polyhead::test {

const char *layout_name(Layout layout) {
    static const char *const names[] = {"bhsd", "bshd", "bhsd_padded", "bshd_padded", "shared"};
    return names[static_cast<int>(layout)];
}

std::vector<int64_t> head_strides(Layout layout, int64_t heads, int64_t length, int64_t dim) {
    switch (layout) {
    case Layout::bhsd:
        return {heads * length * dim, length * dim, dim, 1};
    case Layout::shared:
        return {0, length * dim, dim, 1};
    case Layout::bshd:
        return {length * heads * dim, dim, heads * dim, 1};
    case Layout::bhsd_padded: {
        const int64_t row = dim + 5, head = length * row + 3;
        return {heads * head + 7, head, row, 1};
    }
    case Layout::bshd_padded: {
        const int64_t head = dim + 2, row = heads * head + 9;
        return {length * row + 11, head, row, 1};
    }
    }
    return {};
}

std::vector<int64_t> token_strides(Layout layout, int64_t batch, int64_t length, int64_t features) {
    switch (layout) {
    case Layout::bhsd:
        return {length * features, features, 1};
    case Layout::shared:
        return {0, features, 1};
    case Layout::bshd:
        return {features, batch * features, 1};
    case Layout::bhsd_padded:
        return {length * (features + 3) + 5, features + 3, 1};
    case Layout::bshd_padded:
        return {features + 1, batch * (features + 1) + 6, 1};
    }
    return {};
}

std::vector<int64_t> dense_strides(const std::vector<int64_t> &shape) {
    std::vector<int64_t> stride(shape.size(), 1);
    for (size_t dim = shape.size(); dim-- > 1;) {
        stride[dim - 1] = stride[dim] * shape[dim];
    }
    return stride;
}

Tensor make_tensor(DType dtype, const std::vector<int64_t> &shape, const std::vector<int64_t> &stride, Place place) {
    int64_t elements = 1;
    bool empty = false;
    for (size_t dim = 0; dim < shape.size(); dim++) {
        empty = empty || shape[dim] == 0;
        elements += (shape[dim] - 1) * stride[dim];
    }
    Tensor tensor{GuardedBuffer(empty ? 0 : static_cast<size_t>(elements * dtype_bytes(static_cast<int32_t>(dtype))), place), {}};
    tensor.view.data = tensor.memory.data();
    tensor.view.dtype = static_cast<int32_t>(dtype);
    tensor.view.rank = static_cast<int32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), tensor.view.shape);
    std::copy(stride.begin(), stride.end(), tensor.view.stride);
    return tensor;
}

Tensor store(Tensor &values, int32_t dtype, Place place) {
    const polyhead_tensor &view = values.view;
    const std::vector<int64_t> shape(view.shape, view.shape + view.rank), stride(view.stride, view.stride + view.rank);
    Tensor stored = make_tensor(static_cast<DType>(dtype), shape, stride, place);
    if (stored.memory.bytes() != 0) {
        uint16_t *bits = static_cast<uint16_t *>(stored.view.data);
        float *floats = static_cast<float *>(view.data);
        for_each_offset(view, [&](int64_t offset, int64_t, int64_t, int64_t) {
            for (int64_t i = offset; i < offset + view.shape[view.rank - 1]; i++) {
                bits[i] = to_storage_bits(floats[i], dtype);
                floats[i] = from_storage_bits(bits[i], dtype);
            }
        });
    }
    return stored;
}

void fill_normal(const Tensor &tensor, Random &random, float scale, float mean) {
    for_each_row(tensor.view, [&](float *row, int64_t, int64_t, int64_t) {
        for (int64_t d = 0; d < tensor.view.shape[tensor.view.rank - 1]; d++) {
            row[d] = mean + scale * random.normal();
        }
    });
}

} // namespace polyhead::test
