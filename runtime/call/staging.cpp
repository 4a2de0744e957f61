// Host tensors on their way to a device. Halide copies memory that is contiguous in some order of dimensions at once, other tensors
// row by row, and aborts on negative strides: what is not contiguous is packed here first.
#include "staging.h"

#include <algorithm>
#include <cstring>

#include "../rules/tensor_rules.h"
#include "../status.h"

namespace polyhead::runtime {
namespace {

bool moves(const polyhead_tensor &t, int i) noexcept {
    return t.shape[i] > 1 && t.stride[i] != 0;
}

// From the smallest stride upwards, each is exactly what the smaller ones reach.
bool fills_its_memory(const polyhead_tensor &t) noexcept {
    int order[POLYHEAD_MAX_RANK], count = 0;
    for (int i = 0; i < t.rank; ++i) {
        if (!moves(t, i)) {
            continue;
        }
        int at = count++;
        for (; at > 0 && t.stride[order[at - 1]] > t.stride[i]; --at) {
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    int64_t dense = 1;
    for (int n = 0; n < count; ++n) {
        if (t.stride[order[n]] != dense) {
            return false;
        }
        dense *= t.shape[order[n]];
    }
    return true;
}

// Copies dimensions `dimension` and inwards.
void copy_from(const polyhead_tensor &from, const polyhead_tensor &to, int dimension, const char *source, char *target,
               int bytes) noexcept {
    if (dimension == from.rank) {
        std::memcpy(target, source, static_cast<size_t>(bytes));
        return;
    }
    const int64_t extent = moves(to, dimension) ? to.shape[dimension] : 1;
    if (dimension == from.rank - 1 && from.stride[dimension] == 1 && to.stride[dimension] == 1) {
        std::memcpy(target, source, static_cast<size_t>(extent * bytes));
        return;
    }
    for (int64_t i = 0; i < extent; ++i) {
        copy_from(from, to, dimension + 1, source + i * from.stride[dimension] * bytes, target + i * to.stride[dimension] * bytes, bytes);
    }
}

} // namespace

polyhead_tensor staged_layout(const polyhead_tensor &tensor) noexcept {
    polyhead_tensor layout = tensor;
    if (fills_its_memory(tensor)) {
        return layout;
    }
    int64_t dense = 1;
    for (int i = tensor.rank - 1; i >= 0; --i) {
        if (moves(tensor, i)) {
            layout.stride[i] = dense;
            dense *= tensor.shape[i];
        }
    }
    return layout;
}

size_t staged_bytes(const polyhead_tensor &layout) noexcept {
    int64_t elements = 1;
    for (int i = 0; i < layout.rank; ++i) {
        elements *= moves(layout, i) ? layout.shape[i] : 1;
    }
    return static_cast<size_t>(elements * dtype_bytes(layout.dtype));
}

void copy_elements(const polyhead_tensor &from, const polyhead_tensor &to) noexcept {
    const int bytes = dtype_bytes(from.dtype);
    copy_from(from, to, 0, elements(from, bytes), elements(to, bytes), bytes);
}

} // namespace polyhead::runtime
