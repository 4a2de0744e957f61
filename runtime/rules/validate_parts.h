// The parts of validate(), by topic; each is one file. They return false and a status when they refuse.
#ifndef POLYHEAD_RUNTIME_VALIDATE_PARTS_H
#define POLYHEAD_RUNTIME_VALIDATE_PARTS_H

#include <polyhead/c_api.h>

#include "../call/kernel_table.h"
#include "bound_extents.h"
#include "tensor_rules.h"
#include "validate.h"

namespace polyhead::runtime {

// validate.cpp: the operation and the packed weights; and of a call whose form is right, what its tensors hold and where they are. The
// problem has the heads of the call.
bool check_operation(const KernelTable &kernel, const polyhead_args &args, polyhead_status *status) noexcept;
bool check_weights(const KernelTable &kernel, const polyhead_weights *weights, polyhead_status *status) noexcept;
bool check_contents(const KernelTable &kernel, const polyhead_problem &problem, const polyhead_args &args, const Resources &resources,
                    const CallShape &shape, polyhead_status *status) noexcept;

// validate_tensors.cpp: first whether the kernel takes what was given; then one tensor that gives lengths of the call; then all others.
bool check_surplus(const KernelTable &kernel, const polyhead_args &args, polyhead_status *status) noexcept;
bool check_lengths_of(const TensorRow &row, const polyhead_args &args, BoundExtents *bound, polyhead_status *status) noexcept;
bool check_other_tensors(const KernelTable &kernel, const BoundExtents &bound, const polyhead_args &args, polyhead_status *status) noexcept;

// validate_values.cpp: the numbers of a call; then what integer tensors on the host hold, after their shapes.
bool check_numbers(const polyhead_problem &problem, const polyhead_args &args, polyhead_status *status) noexcept;
bool check_values(const polyhead_problem &problem, const polyhead_args &args, const CallShape &shape, Workers *workers,
                  polyhead_status *status) noexcept;
// validate_scales.cpp: what the scales of an int8 cache on the host hold.
bool check_scales(const polyhead_problem &problem, const polyhead_args &args, const CallShape &shape, Workers *workers,
                  polyhead_status *status) noexcept;
// Whether checks may look at the elements. Reading memory of a device would wait for it: kernels clamp key lengths and positions instead,
// offsets and scales are the caller's to keep in range.
inline bool readable(const polyhead_tensor &t) noexcept {
    return !absent(t) && !t.device && !empty(t);
}

// validate_cache.cpp: the cache of a layer. First whether it has room for the new keys; then what lengths and page table on the host hold;
// last whether a page that is written is used once.
bool check_capacity(const polyhead_problem &problem, const polyhead_args &args, const CallShape &shape, polyhead_status *status) noexcept;
bool check_cache_values(const polyhead_problem &problem, const polyhead_args &args, const CallShape &shape,
                        polyhead_status *status) noexcept;
bool check_cache_use(const polyhead_problem &problem, const polyhead_args &args, const CallShape &shape, CallMemory *memory,
                     polyhead_status *status) noexcept;

// validate_sequences.cpp: packed tokens. First how many sequences there are, where they are packed; then, when the lengths of the call are
// known, where each begins, and whether the kernel can compute them one by one.
bool check_sequences(const polyhead_args &args, int64_t *sequences, polyhead_status *status) noexcept;
// Whether int32 [B+1] goes from 0 to the extent of the packed dimension, and never falls.
bool check_begins(const char *name, const polyhead_tensor &tensor, const char *packed, int64_t total, polyhead_status *status) noexcept;
bool check_ragged(const KernelTable &kernel, const polyhead_args &args, const CallShape &shape, polyhead_status *status) noexcept;

// validate_places.cpp: whether tensors and weights are where the call can use them. After shapes and strides were checked: whether device
// memory is on the device that the arguments name, and whether an output, or scratch memory, shares memory with another tensor.
bool check_places(const KernelTable &kernel, const polyhead_args &args, polyhead_status *status) noexcept;
bool check_device_memory(const KernelTable &kernel, const polyhead_args &args, polyhead_status *status) noexcept;
bool check_aliasing(const KernelTable &kernel, const polyhead_args &args, polyhead_status *status) noexcept;
bool check_scratch(const KernelTable &kernel, const polyhead_args &args, polyhead_status *status) noexcept;

} // namespace polyhead::runtime
#endif
