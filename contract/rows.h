// Looks up rows of the tables in this folder, which are found by their id.
#ifndef POLYHEAD_CONTRACT_ROWS_H
#define POLYHEAD_CONTRACT_ROWS_H

#include <cstddef>
#include <cstdint>

namespace polyhead::contract {

// Null for a number that is no id.
template <class Row, size_t count> constexpr const Row *find_row(const Row (&rows)[count], int32_t id) noexcept {
    for (const Row &row : rows) {
        if (row.id == id) {
            return &row;
        }
    }
    return nullptr;
}

// One fact of the row, or `otherwise`. Without pointers to rows: sanitizers allow no comparison of them in a constant.
template <class Row, size_t count, class Fact>
constexpr Fact fact_of(const Row (&rows)[count], int32_t id, Fact Row::*fact, Fact otherwise) noexcept {
    for (const Row &row : rows) {
        if (row.id == id) {
            return row.*fact;
        }
    }
    return otherwise;
}

} // namespace polyhead::contract
#endif
