// The rules that hold for any one tensor: presence, dtype, rank, extents, strides, reach, memory.
#ifndef POLYHEAD_RUNTIME_TENSOR_RULES_H
#define POLYHEAD_RUNTIME_TENSOR_RULES_H

#include <cstdint>

#include <polyhead/c_api.h>

namespace polyhead::runtime {

constexpr int64_t any_extent = -1;

// The expected extent of one dimension, and which tensor it was taken from (null: the problem).
struct Extent {
    int64_t extent = any_extent;
    const char *as_in = nullptr;
};

enum class Role {
    input,   // innermost stride 1, the others free
    lengths, // every stride free
    weight,  // the same
    output,  // innermost stride 1, elements may not overlap
};

struct TensorRule {
    const char *name;
    const polyhead_tensor *tensor;
    int32_t dtype;
    Role role;
    int32_t rank;
    Extent extents[POLYHEAD_MAX_RANK];
};

// Bytes [begin, end) between the lowest and the highest element of a tensor; empty for an empty tensor.
struct MemoryRange {
    uintptr_t begin, end;
};

bool absent(const polyhead_tensor &tensor) noexcept;
bool empty(const polyhead_tensor &tensor) noexcept;

bool check_tensor(const TensorRule &rule, polyhead_status *status) noexcept;

// Of a checked tensor.
MemoryRange memory_of(const polyhead_tensor &tensor) noexcept;
inline bool overlap(const MemoryRange &a, const MemoryRange &b) noexcept {
    return a.begin < b.end && b.begin < a.end;
}

} // namespace polyhead::runtime
#endif
