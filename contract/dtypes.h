// The types of tensor elements: one row each.
#ifndef POLYHEAD_CONTRACT_DTYPES_H
#define POLYHEAD_CONTRACT_DTYPES_H

#include <cstddef>
#include <cstdint>

#include <polyhead/c_problem.h>

#include "rows.h"

namespace polyhead::contract {

// How a kernel is given elements. Halide's own 16-bit types do not compile for every device, so kernels take bits and convert them. A
// boolean is a byte that kernels compare with 0.
enum class Carrier : uint8_t { real, integer, bits };

struct DTypeRow {
    const char *name;
    int32_t id; // polyhead_dtype
    int32_t bytes;
    bool storage; // query, key, value, out and weights can be stored in it: `dtype` of a problem
    Carrier carrier;
    // Inputs of a packed weight whose entries of a column lie side by side, because one instruction multiplies them: fixed for a storage
    // type, so that all variants of a kernel share packed weights.
    int32_t weight_pair;
};

// In the order of polyhead_dtype.
inline constexpr DTypeRow dtypes[] = {
    {"f32", POLYHEAD_F32, 4, true, Carrier::real, 1},     {"f16", POLYHEAD_F16, 2, true, Carrier::bits, 1},
    {"bf16", POLYHEAD_BF16, 2, true, Carrier::bits, 2},   {"i8", POLYHEAD_I8, 1, false, Carrier::bits, 1},
    {"i32", POLYHEAD_I32, 4, false, Carrier::integer, 1}, {"bool", POLYHEAD_BOOL, 1, false, Carrier::bits, 1},
};

// Null for a number that is no dtype.
constexpr const DTypeRow *find_dtype(int32_t id) noexcept {
    return find_row(dtypes, id);
}
// "f32", or "unknown".
constexpr const char *dtype_name(int32_t id) noexcept {
    return fact_of(dtypes, id, &DTypeRow::name, "unknown");
}
// Of one element; 0 for a number that is no dtype.
constexpr int dtype_bytes(int32_t id) noexcept {
    return fact_of(dtypes, id, &DTypeRow::bytes, 0);
}

} // namespace polyhead::contract
#endif
