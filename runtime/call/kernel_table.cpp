// Reads the table of a kernel.
#include "kernel_table.h"

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

} // namespace

bool KernelTable::read(const polyhead_kernel *table, polyhead_status *status) noexcept {
    if (!table) {
        return refuse(status, POLYHEAD_NULL_POINTER, "kernel: null pointer, expected a kernel");
    }
    const polyhead_sizes &sizes = table->sizes;
    const bool known = sizes.variant >= lowest_bytes<polyhead_variant> && sizes.declaration >= lowest_bytes<polyhead_declaration> &&
                       sizes.problem >= lowest_bytes<polyhead_problem>;
    if (!known || sizes.kernel > most_bytes || sizes.problem > most_bytes || sizes.kernel < lowest_bytes<polyhead_kernel> + sizes.problem) {
        return refuse(status, POLYHEAD_UNSUPPORTED,
                      "kernel: a table without the sizes of its structs, expected POLYHEAD_SIZES: generate it with polyhead %s",
                      polyhead_version());
    }
    // What lies behind the problem begins where that ends.
    const polyhead_problem *const given = &table->problem;
    const auto *const rest =
        reinterpret_cast<const polyhead_kernel *>(reinterpret_cast<const char *>(table) + sizes.problem - sizeof *given);
    polyhead_problem room;
    const polyhead_problem *const given_problem = given->size == sizes.problem && given->size == sizeof room
                                                      ? given
                                                      : problem_of_other_size(rest->name, *given, sizes.problem, &room, status);
    if (!given_problem) {
        return false;
    }
    name = rest->name;
    variants = {rest->variants, sizes.variant};
    declarations = {rest->declarations, sizes.declaration};
    num_variants = rest->num_variants;
    num_declarations = rest->num_declarations;
    expression_facts = rest->expression_facts;
    problem = with_defaults(*given_problem);
    problem.size = sizeof problem;
    tensors = taken_by(problem);
    return true;
}

} // namespace polyhead::runtime
