// The table of a kernel as the runtime reads it, whatever version of the headers it was compiled with.
#ifndef POLYHEAD_RUNTIME_KERNEL_TABLE_H
#define POLYHEAD_RUNTIME_KERNEL_TABLE_H

#include <cstdint>

#include <polyhead/c_api.h>

#include "../../contract/tensors.h"

namespace polyhead::runtime {

// An array of structs of another size: with fields that this library does not know, or without those that came after the lowest ABI that
// it serves: those are read by later().
template <class T> class Rows {
public:
    Rows() noexcept = default;
    const T *first() const noexcept { return reinterpret_cast<const T *>(first_); }
    Rows(const T *first, uint32_t bytes) noexcept : first_(reinterpret_cast<const char *>(first)), bytes_(bytes) {}
    const T &operator[](int32_t i) const noexcept { return *reinterpret_cast<const T *>(first_ + static_cast<int64_t>(i) * bytes_); }
    uint32_t bytes() const noexcept { return bytes_; } // of one

    // A field of a row that came after the lowest ABI; 0 where the rows end before it.
    template <class Field> Field later(const T &row, Field T::*field) const noexcept {
        const auto end = reinterpret_cast<const char *>(&(row.*field) + 1) - reinterpret_cast<const char *>(&row);
        return end <= int64_t(bytes_) ? row.*field : Field{};
    }

private:
    const char *first_ = nullptr;
    uint32_t bytes_ = 0;
};

struct KernelTable {
    // False and a status when the table cannot be served.
    bool read(const polyhead_kernel *table, polyhead_status *status) noexcept;

    // True of this table, and of a copy of it: a table is local to each file that includes NAME.h. The symbol of an entry has a hash of all
    // that the kernel is, so no other kernel has this entry.
    bool same(const polyhead_kernel *table) const noexcept;

    // The name of the gradient of a declared tensor, or null where none is written.
    const char *gradient_name(int32_t declared) const noexcept {
        return declarations.later(declarations[declared], &polyhead_declaration::gradient);
    }

    // The expression uses b otherwise than as the index of a dimension that is declared as b: a part of the batch gives other answers.
    bool reads_batch_row() const noexcept { return (expression_facts & POLYHEAD_EXPRESSION_BATCH_ROW) != 0; }

    polyhead_sizes sizes{};
    const char *name = nullptr;
    Rows<polyhead_variant> variants;
    Rows<polyhead_declaration> declarations;
    int32_t num_variants = 0, num_declarations = 0;
    int32_t gradients[contract::most_expression_tensors] = {}, num_gradients = 0; // declarations of tensors with one
    int (*first_entry)(void **argv) = nullptr;
    uint32_t expression_facts = 0;
    polyhead_problem problem{};             // every default is written out
    contract::TensorSet tensors, not_taken; // rows of tensors that this kernel takes, and of those that it takes by no row
};

} // namespace polyhead::runtime
#endif
