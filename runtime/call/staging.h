// Host tensors on their way to a device: how they are laid out there, and the copy that lays them out so.
#ifndef POLYHEAD_RUNTIME_STAGING_H
#define POLYHEAD_RUNTIME_STAGING_H

#include <cstddef>

#include <polyhead/c_api.h>

namespace polyhead::runtime {

// A checked host tensor as a device gets it. Itself, when one copy of its memory would copy its elements and nothing else, in whatever
// order of dimensions; otherwise with the strides of a contiguous tensor. Dimensions of stride 0 stay so: nothing is multiplied.
polyhead_tensor staged_layout(const polyhead_tensor &tensor) noexcept;

// Bytes from the first to the last element of such a layout.
size_t staged_bytes(const polyhead_tensor &layout) noexcept;

inline bool same_layout(const polyhead_tensor &a, const polyhead_tensor &b) noexcept {
    for (int i = 0; i < a.rank; ++i) {
        if (a.stride[i] != b.stride[i]) {
            return false;
        }
    }
    return true;
}

// Copies elements between host tensors of the same shape and dtype; where the destination has stride 0, one element.
void copy_elements(const polyhead_tensor &from, const polyhead_tensor &to) noexcept;

} // namespace polyhead::runtime
#endif
