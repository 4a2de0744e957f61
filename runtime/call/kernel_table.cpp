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
    not_taken = ~tensors;
    for (size_t i = 0; i < num_tensors; ++i) {
        if (takes(problem, contract::tensors[i])) {
            tensors.add(i);
            not_taken = not_taken & ~same_tensor[i];
        }
    }
    return true;
}

} // namespace polyhead::runtime
