// Finds the kernel of a set that computes a problem, and explains the choice, or how to make such a kernel.
#include <cstdio>
#include <string>

#include <polyhead/polyhead.h>

#include "../contract/problem_fields.h"
#include "call/dispatch.h"
#include "call/kernel_table.h"
#include "rules/served.h"
#include "status.h"

namespace polyhead {
namespace {

using runtime::KernelTable;

constexpr runtime::ServedName of_problem{"problem", "polyhead_problem", "begin it with polyhead_problem_of() of"};

// A kernel that this library cannot read computes nothing here.
bool readable(const Kernel &kernel, KernelTable *table) noexcept {
    polyhead_status status;
    return table->read(&kernel, &status);
}

// Calls visit(field, kernel's value, wanted value) for every field in which the kernel does not serve the problem of the same operation.
template <typename Visit> void differences(const Problem &kernel_problem, const Problem &wanted_problem, Visit visit) {
    const Problem kernel = contract::written_out(kernel_problem);
    Problem wanted = contract::written_out(wanted_problem);
    if (contract::free_heads(kernel) && kernel.free_group_size != 0) { // takes any heads
        wanted.free_group_size = kernel.free_group_size;
        wanted.group_size = wanted.num_heads = wanted.num_kv_heads = 0;
    } else if (contract::free_heads(kernel) && wanted.free_group_size == 0) { // takes any heads of this group size
        wanted.group_size = contract::group_size_of(wanted);
        wanted.num_heads = wanted.num_kv_heads = 0;
    }
    // A mask that is left out has no dimensions.
    wanted.mask_broadcast = wanted.mask == 0 ? kernel.mask_broadcast : wanted.mask_broadcast;
    wanted.score_bias_broadcast = wanted.score_bias == 0 ? kernel.score_bias_broadcast : wanted.score_bias_broadcast;
    for (const contract::ProblemField &field : contract::problem_fields) {
        const int32_t has = kernel.*field.value, wants = wanted.*field.value;
        if (field.belongs_to(wanted.op) && !field.serves(has, wants)) {
            visit(field, has, wants);
        }
    }
}

// 0 when the kernel computes the problem.
int num_differences(const Problem &kernel, const Problem &wanted) noexcept {
    if (kernel.op != wanted.op) {
        return INT32_MAX;
    }
    int count = contract::same_expression(kernel.expression, wanted.expression) ? 0 : 1;
    differences(kernel, wanted, [&](const contract::ProblemField &, int32_t, int32_t) { ++count; });
    return count;
}

// Among kernels that compute a problem: one that runs here, then the one with more fixed at build time, then the one with the least to
// leave out.
int preference(const KernelTable &kernel, const Problem &wanted) noexcept {
    int same = 0;
    for (const contract::ProblemField &field : contract::problem_fields) {
        same += kernel.problem.*field.value == wanted.*field.value;
    }
    return 1000 * runtime::any_runs_on(kernel, nullptr) + 100 * (kernel.problem.seq_len_q != 0) + 100 * (kernel.problem.seq_len_kv != 0) +
           same;
}

std::string generate_line(const Problem &p) {
    return "polyhead generate NAME " + contract::flags_of(p);
}

std::string needs_of(const KernelTable &kernel, const Variant &variant) {
    char names[256];
    polyhead_cpu_feature_names(variant.cpu_features, names, sizeof names);
    std::string text = names[0] ? names : "nothing special";
    if (variant.api != POLYHEAD_CPU) {
        text = std::string("a device, ") + contract::api_name(variant.api);
        if (variant.capability > 0) {
            text += " " + std::to_string(variant.capability / 10) + "." + std::to_string(variant.capability % 10) +
                    (kernel.variants.later(variant, &Variant::capability_exact) ? " and no other" : " or newer");
        }
        if (variant.shared_bytes > 0) {
            text += " with " + std::to_string(variant.shared_bytes) + " bytes of shared memory";
        }
        if (const int32_t queries = kernel.variants.later(variant, &Variant::few_blocks_of); queries > 0) {
            text += ", for fewer blocks of " + std::to_string(queries) + " queries than it has multiprocessors";
        }
        text += names[0] ? std::string(", and ") + names : "";
    }
    return text;
}

bool for_devices_only(const KernelTable &kernel) {
    for (int32_t i = 0; i < kernel.num_variants; ++i) {
        if (kernel.variants[i].api == POLYHEAD_CPU) {
            return false;
        }
    }
    return kernel.num_variants > 0;
}

std::string why_this(const KernelTable &kernel) {
    std::string text = std::string(kernel.name) + " computes this problem";
    const Problem &p = kernel.problem;
    const std::string q = p.seq_len_q > 0 ? std::to_string(p.seq_len_q) : "free",
                      kv = p.seq_len_kv > 0 ? std::to_string(p.seq_len_kv) : "free";
    text += !contract::attends(p) ? " (rows " + q + ")" : " (seq_len_q " + q + ", seq_len_kv " + kv + ")";
    text += runtime::any_runs_on(kernel, nullptr) || for_devices_only(kernel) ? "; variants:"
                                                                              : ", but this CPU lacks what each of its variants needs:";
    for (int32_t i = 0; i < kernel.num_variants; ++i) {
        text += std::string("\n  ") + kernel.variants[i].name + ": needs " + needs_of(kernel, kernel.variants[i]);
    }
    return text + "\n";
}

std::string nearest(const Kernel *const *set, size_t count, const Problem &wanted) {
    KernelTable best;
    int fewest = INT32_MAX;
    for (size_t i = 0; i < count; ++i) {
        KernelTable kernel;
        const int differing = readable(*set[i], &kernel) ? num_differences(kernel.problem, wanted) : INT32_MAX;
        if (differing < fewest) {
            fewest = differing;
            best = kernel;
        }
    }
    if (fewest == INT32_MAX) {
        return std::string("No kernel of the set has operation ") + contract::op_name(wanted.op) + ".\n";
    }
    std::string text = std::string("No kernel of the set computes this problem; the nearest, ") + best.name + ", differs:";
    const char *separator = " ";
    const auto differs = [&](const char *name, const std::string &has, const std::string &wants) {
        text += separator + std::string(name) + " " + has + ", wanted " + wants;
        separator = "; ";
    };
    differences(best.problem, wanted, [&](const contract::ProblemField &field, int32_t has, int32_t wants) {
        differs(field.name, contract::word_of(field, has), contract::word_of(field, wants));
    });
    if (!contract::same_expression(best.problem.expression, wanted.expression)) {
        const auto quoted = [](const char *expression) {
            const std::string line = contract::one_line(expression);
            return line.empty() ? "none" : "'" + line + "'";
        };
        differs("expression", quoted(best.problem.expression), quoted(wanted.expression));
    }
    return text + ".\n";
}

} // namespace

const Kernel *find_kernel(const Kernel *const *set, size_t count, const Problem &problem) noexcept {
    polyhead_status status = runtime::success();
    Problem room;
    const Problem *const wanted = runtime::served(problem, &room, of_problem, &status);
    const Kernel *best = nullptr;
    int most = INT32_MIN;
    for (size_t i = 0; wanted && i < count; ++i) {
        KernelTable kernel;
        if (!readable(*set[i], &kernel) || num_differences(kernel.problem, *wanted) > 0) {
            continue;
        }
        const int preferred = preference(kernel, *wanted);
        if (preferred > most) {
            most = preferred;
            best = set[i];
        }
    }
    return best;
}

std::string explain(const Kernel *const *set, size_t count, const Problem &problem) {
    polyhead_status status = runtime::success();
    Problem room;
    const Problem *const wanted = runtime::served(problem, &room, of_problem, &status);
    if (!wanted) {
        return std::string(status.message) + "\n";
    }
    KernelTable found;
    if (const Kernel *kernel = find_kernel(set, count, *wanted)) {
        readable(*kernel, &found);
        return why_this(found);
    }
    return nearest(set, count, *wanted) + "Add one with:\n  " + generate_line(*wanted) + "\n";
}

} // namespace polyhead
