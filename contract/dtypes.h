// The types of tensor elements: one row each.
#ifndef POLYHEAD_CONTRACT_DTYPES_H
#define POLYHEAD_CONTRACT_DTYPES_H

#include <cstddef>
#include <cstdint>

#include <polyhead/c_problem.h>

namespace polyhead::contract {

// How a kernel is given elements. Halide's own 16-bit types do not compile for every device, so kernels take bits and convert them. A
// boolean is a byte that kernels compare with 0.
enum class Carrier : uint8_t { real, integer, bits };

struct DTypeRow {
    const char *name;
    int32_t id; // polyhead_dtype
    int32_t bytes;
    Carrier carrier;
    bool may_store; // the storage type of a problem may be this one
};

// In the order of polyhead_dtype.
inline constexpr DTypeRow dtypes[] = {
    {"f32", POLYHEAD_F32, 4, Carrier::real, true},     {"f16", POLYHEAD_F16, 2, Carrier::bits, true},
    {"bf16", POLYHEAD_BF16, 2, Carrier::bits, true},   {"i8", POLYHEAD_I8, 1, Carrier::bits, false},
    {"i32", POLYHEAD_I32, 4, Carrier::integer, false}, {"bool", POLYHEAD_BOOL, 1, Carrier::bits, false},
};

// Null for a number that is no dtype.
constexpr const DTypeRow *find_dtype(int32_t id) noexcept {
    for (const DTypeRow &row : dtypes) {
        if (row.id == id) {
            return &row;
        }
    }
    return nullptr;
}

// "f32", or "unknown".
constexpr const char *dtype_name(int32_t id) noexcept {
    const DTypeRow *const row = find_dtype(id);
    return row ? row->name : "unknown";
}

// Of one element; 0 for a number that is no dtype.
constexpr int dtype_bytes(int32_t id) noexcept {
    for (const DTypeRow &row : dtypes) {
        if (row.id == id) {
            return row.bytes;
        }
    }
    return 0;
}

} // namespace polyhead::contract
#endif
