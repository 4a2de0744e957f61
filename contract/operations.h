// What kernels can compute: one row for each operation.
#ifndef POLYHEAD_CONTRACT_OPERATIONS_H
#define POLYHEAD_CONTRACT_OPERATIONS_H

#include <cstdint>

#include <polyhead/c_problem.h>

namespace polyhead::contract {

struct Operation {
    const char *name;
    int32_t id; // polyhead_op
};

// In the order of polyhead_op.
inline constexpr Operation operations[] = {{"sdpa", POLYHEAD_SDPA}, {"mha", POLYHEAD_MHA}, {"linear", POLYHEAD_LINEAR}};

// Null for a number that is no operation.
constexpr const Operation *find_operation(int32_t id) noexcept {
    for (const Operation &row : operations) {
        if (row.id == id) {
            return &row;
        }
    }
    return nullptr;
}

// "sdpa", or "unknown".
constexpr const char *op_name(int32_t id) noexcept {
    const Operation *const row = find_operation(id);
    return row ? row->name : "unknown";
}

} // namespace polyhead::contract
#endif
