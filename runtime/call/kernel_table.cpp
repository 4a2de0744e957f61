// Reads the table of a kernel.
#include "kernel_table.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "../rules/served.h"
#include "../status.h"

namespace polyhead::runtime {
namespace {

const polyhead_problem *problem_of_other_size(const char *kernel, const polyhead_problem &given, uint32_t expected, polyhead_problem *room,
                                              polyhead_status *status) noexcept {
    char subject[160];
    Text(subject, sizeof subject).append("kernel %s", kernel ? kernel : "without a name");
    const ServedName name{subject, "polyhead_problem", "generate it with"};
    if (given.size != expected) {
        refuse(status, POLYHEAD_UNSUPPORTED, "%s: %s of %u bytes, expected %u: %s polyhead %s", subject, name.type, given.size, expected,
               name.advice, polyhead_version());
        return nullptr;
    }
    return served(given, room, name, status);
}

// What lies behind the problem begins where that ends: the table as if its problem had the size of ours.
const polyhead_kernel *rest_of(const polyhead_kernel *table) noexcept {
    return reinterpret_cast<const polyhead_kernel *>(reinterpret_cast<const char *>(table) + table->sizes.problem - sizeof table->problem);
}

// Of each row, the rows of the same tensor: it may serve other operations and problems by another one.
constexpr std::array<TensorSet, num_tensors> rows_of_same_tensor() {
    std::array<TensorSet, num_tensors> all;
    for (size_t i = 0; i < num_tensors; ++i) {
        all[i] = rows_where([&](const TensorRow &row) { return row.tensor == contract::tensors[i].tensor; });
    }
    return all;
}
constexpr std::array<TensorSet, num_tensors> same_tensor = rows_of_same_tensor();

// One row of each tensor, the first.
constexpr TensorSet first_rows = rows_where([](const TensorRow &row) {
    for (const TensorRow *other = contract::tensors; other != &row; ++other) {
        if (other->tensor == row.tensor) {
            return false;
        }
    }
    return true;
});

// Most rows are of other operations.
constexpr auto rows_of_operations() {
    std::array<TensorSet, std::size(contract::operations)> all;
    for (size_t i = 0; i < all.size(); ++i) {
        all[i] = rows_where([&](const TensorRow &row) { return (row.ops & contract::op_bit(contract::operations[i].id)) != 0; });
    }
    return all;
}
constexpr auto rows_of_operation = rows_of_operations();

TensorSet rows_of(int32_t operation) noexcept {
    for (size_t i = 0; i < rows_of_operation.size(); ++i) {
        if (contract::operations[i].id == operation) {
            return rows_of_operation[i];
        }
    }
    return {};
}

} // namespace

bool KernelTable::same(const polyhead_kernel *other) const noexcept {
    if (!other || std::memcmp(&other->sizes, &sizes, sizeof sizes) != 0) {
        return false;
    }
    const polyhead_kernel *const rest = rest_of(other);
    return rest->num_variants == num_variants && num_variants > 0 && rest->num_declarations == num_declarations &&
           rest->variants->entry == first_entry;
}

bool KernelTable::read(const polyhead_kernel *from, polyhead_status *status) noexcept {
    if (!from) {
        return refuse(status, POLYHEAD_NULL_POINTER, "kernel: null pointer, expected a kernel");
    }
    const polyhead_sizes &found = from->sizes;
    const bool known = found.variant >= lowest_bytes<polyhead_variant> && found.declaration >= lowest_bytes<polyhead_declaration> &&
                       found.problem >= lowest_bytes<polyhead_problem>;
    if (!known || found.kernel > most_bytes || found.problem > most_bytes || found.kernel < lowest_bytes<polyhead_kernel> + found.problem) {
        return refuse(status, POLYHEAD_UNSUPPORTED,
                      "kernel: a table without the sizes of its structs, expected POLYHEAD_SIZES: generate it with polyhead %s",
                      polyhead_version());
    }
    const polyhead_problem *const given = &from->problem;
    const polyhead_kernel *const rest = rest_of(from);
    polyhead_problem room;
    const polyhead_problem *const given_problem = given->size == found.problem && given->size == sizeof room
                                                      ? given
                                                      : problem_of_other_size(rest->name, *given, found.problem, &room, status);
    if (!given_problem) {
        return false;
    }
    sizes = found;
    name = rest->name;
    variants = {rest->variants, found.variant};
    declarations = {rest->declarations, found.declaration};
    num_variants = rest->num_variants;
    first_entry = num_variants > 0 ? rest->variants->entry : nullptr;
    num_declarations = rest->num_declarations;
    num_gradients = 0;
    for (int32_t i = 0; num_declarations <= contract::most_expression_tensors && i < num_declarations; ++i) { // more are refused later
        if (gradient_name(i)) {
            gradients[num_gradients++] = i;
        }
    }
    expression_facts = rest->expression_facts;
    problem = with_defaults(*given_problem);
    problem.size = sizeof problem;
    tensors = TensorSet();
    not_taken = first_rows;
    for (const TensorRow &row : rows_of(problem.op)) {
        if (row.exists(problem)) {
            const size_t i = static_cast<size_t>(&row - contract::tensors);
            tensors.add(i);
            not_taken = not_taken & ~same_tensor[i];
        }
    }
    return true;
}

} // namespace polyhead::runtime
