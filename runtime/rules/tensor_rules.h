// The rules that hold for any one tensor: presence, dtype, rank, extents, strides, reach, memory.
#ifndef POLYHEAD_RUNTIME_TENSOR_RULES_H
#define POLYHEAD_RUNTIME_TENSOR_RULES_H

#include <algorithm>
#include <cstdint>

#include <polyhead/c_api.h>

#include "../call/device.h"

namespace polyhead::runtime {

constexpr int64_t any_extent = -1;

// The expected extent of one dimension, and which tensor it was taken from (null: the problem).
struct Extent {
    int64_t extent = any_extent;
    const char *as_in = nullptr;
    bool or_one = false; // one element serves for all
};

enum class Role {
    input,   // innermost stride 1, the others free
    spread,  // the same, or 0
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
    bool or_f32 = false; // another dtype that it may have
};

// Bytes [begin, end) between the lowest and the highest element of a tensor; empty for an empty tensor. Addresses, but where memory is
// an object without addresses (OpenCL): then bytes of that object, or of the one that it is a part of.
struct MemoryRange {
    uint64_t begin, end;
    const void *space = nullptr; // what the bytes are of: null for addresses of the process (polyhead_device::space_of)
};

inline bool absent(const polyhead_tensor &tensor) noexcept {
    return tensor.rank == 0 && !tensor.data;
}
inline bool empty(const polyhead_tensor &tensor) noexcept {
    return std::find(tensor.shape, tensor.shape + tensor.rank, int64_t(0)) != tensor.shape + tensor.rank;
}

bool check_tensor(const TensorRule &rule, polyhead_status *status) noexcept;
// The same, and that it lies in host memory.
bool check_host_tensor(const TensorRule &rule, polyhead_status *status) noexcept;
// Of a tensor with elements: where they are.
bool check_address(const char *name, const polyhead_tensor &tensor, polyhead_status *status) noexcept;
// What outputs are held to: no two elements are the same memory.
bool check_no_overlap(const char *name, const polyhead_tensor &tensor, polyhead_status *status) noexcept;

// An element of an int32 tensor [i] or [i,j] in host memory, for checks. The stride of a dimension of one element means nothing.
// Another thread may change the element at any time: a number that was checked, and is read again, may be any other one. So memory is
// only ever accessed by what index_at() gives, or by the one number that was checked.
int32_t integer_at(const polyhead_tensor &tensor, int64_t i, int64_t j = 0) noexcept;
// The same for use as an index, from 0 to most (at least 0): beyond them the nearer one.
int64_t index_at(const polyhead_tensor &tensor, int64_t most, int64_t i, int64_t j = 0) noexcept;
// The positions [B,T] of a direction in [B,S,T].
polyhead_tensor of_direction(const polyhead_tensor &positions, int64_t direction) noexcept;
// Whether the first `count` entries of a row of a page table name pages; `of` says whose.
bool check_page_row(const polyhead_tensor &table, int64_t row, int64_t count, int64_t pages, const char *of,
                    polyhead_status *status) noexcept;

// Address of the first element of a tensor in host memory.
inline char *elements(const polyhead_tensor &tensor, int element_bytes) noexcept {
    return static_cast<char *>(tensor.data) + tensor.offset * element_bytes;
}

// Of a checked tensor, whose device has accepted its memory.
MemoryRange memory_of(const polyhead_tensor &tensor) noexcept;
inline bool overlap(const MemoryRange &a, const MemoryRange &b) noexcept {
    return a.space == b.space && a.begin < b.end && b.begin < a.end;
}
// The lowest and the highest element that a tensor with elements reaches, counted from its data.
struct ElementRange {
    int64_t lowest, highest;
};
ElementRange reach_of(const polyhead_tensor &tensor) noexcept;
// The same bytes relative to the data of a checked tensor that has elements.
DeviceRange range_of(const char *name, const polyhead_tensor &tensor) noexcept;

} // namespace polyhead::runtime
#endif
