// Whether two tensors may have an element in common. Address ranges are compared first; where they overlap, strides may prove more.
#ifndef POLYHEAD_RUNTIME_SHARED_ELEMENTS_H
#define POLYHEAD_RUNTIME_SHARED_ELEMENTS_H

#include <polyhead/c_api.h>

#include "tensor_rules.h"

namespace polyhead::runtime {

// False where it is proved that checked tensors have no byte in common: such as the keys and values of a cache that lie side by side in
// each row. True where they share an element, and where the strides prove nothing.
bool may_share_elements(const polyhead_tensor &a, const polyhead_tensor &b) noexcept;

// The same of host memory whose elements have so many bytes, whatever their types are.
bool may_share_elements(const polyhead_tensor &a, int64_t bytes_of_a, const polyhead_tensor &b, int64_t bytes_of_b) noexcept;

// How an output is kept apart from another tensor.
enum class Apart {
    elements, // no element in common
    ranges,   // no address between their first and last element in common: where memory is copied as a whole
};

// What an output is refused with that shares memory.
bool refuse_shared(const char *output, const char *other, polyhead_status *status) noexcept;

// Whether an output shares no memory with another tensor.
bool check_apart(const char *output, const polyhead_tensor &written, const char *other, const polyhead_tensor &tensor, Apart apart,
                 polyhead_status *status) noexcept;

} // namespace polyhead::runtime
#endif
