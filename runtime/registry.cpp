// Finds the kernel of a set that computes a problem, and says why that one, or how to make one.
#include <cstdio>
#include <string>

#include <polyhead/polyhead.h>

#include "status.h"
#include "weight_layout.h"

namespace polyhead {
namespace {

// One field of a problem: its name in sentences, and whether a kernel's value serves a wanted one.
struct Field {
    const char *name;
    int32_t Problem::*value;
    bool (*serves)(int32_t kernel, int32_t wanted);
};

bool same(int32_t kernel, int32_t wanted) {
    return kernel == wanted;
}
bool same_truth(int32_t kernel, int32_t wanted) {
    return (kernel != 0) == (wanted != 0);
}
bool fixed_or_free(int32_t kernel, int32_t wanted) {
    return kernel == 0 || kernel == wanted;
}
// An optional tensor may be left out of a call.
bool same_or_optional(int32_t kernel, int32_t wanted) {
    return kernel != 0 || wanted == 0;
}

constexpr Field attention_fields[] = {
    {"dtype", &Problem::dtype, same},
    {"num_heads", &Problem::num_heads, same},
    {"num_kv_heads", &Problem::num_kv_heads, same},
    {"head_dim", &Problem::head_dim, same},
    {"head_dim_v", &Problem::head_dim_v, same},
    {"causal", &Problem::causal, same},
    {"kv_lengths", &Problem::kv_lengths, same_or_optional},
    {"lse", &Problem::lse, same_truth},
    {"seq_len_q", &Problem::seq_len_q, fixed_or_free},
    {"seq_len_kv", &Problem::seq_len_kv, fixed_or_free},
};
constexpr Field layer_fields[] = {
    {"embed_dim", &Problem::embed_dim, same}, {"kdim", &Problem::kdim, same},       {"vdim", &Problem::vdim, same},
    {"cross", &Problem::cross, same_truth},   {"bias", &Problem::bias, same_truth},
};
constexpr Field linear_fields[] = {
    {"dtype", &Problem::dtype, same},     {"embed_dim", &Problem::embed_dim, same},          {"out_features", &Problem::out_features, same},
    {"bias", &Problem::bias, same_truth}, {"seq_len_q", &Problem::seq_len_q, fixed_or_free},
};

// Calls visit(field, kernel's value, wanted value) for every field in which the kernel does not serve the problem of the same operation.
template <size_t count, typename Visit>
void differences(const Field (&fields)[count], const Problem &kernel, const Problem &wanted, Visit visit) {
    for (const Field &field : fields) {
        const int32_t has = kernel.*field.value, wants = wanted.*field.value;
        if (!field.serves(has, wants)) {
            visit(field, has, wants);
        }
    }
}

template <typename Visit> void all_differences(const Problem &kernel, const Problem &wanted, Visit visit) {
    if (wanted.op == POLYHEAD_LINEAR) {
        return differences(linear_fields, kernel, wanted, visit);
    }
    differences(attention_fields, kernel, wanted, visit);
    if (wanted.op == POLYHEAD_MHA) {
        differences(layer_fields, kernel, wanted, visit);
    }
}

// 0 when the kernel computes the problem.
int num_differences(const Problem &kernel, const Problem &wanted) noexcept {
    if (kernel.op != wanted.op) {
        return INT32_MAX;
    }
    int count = 0;
    all_differences(runtime::with_defaults(kernel), runtime::with_defaults(wanted), [&](const Field &, int32_t, int32_t) { ++count; });
    return count;
}

// Among kernels that compute a problem: one that runs here, then the one with more fixed at build time.
int preference(const Kernel &kernel, const Problem &wanted) noexcept {
    return 8 * kernel.supported() + 2 * (kernel.problem.seq_len_q != 0) + 2 * (kernel.problem.seq_len_kv != 0) +
           ((kernel.problem.kv_lengths != 0) == (wanted.kv_lengths != 0));
}

const char *causal_name(int32_t causal) {
    return causal == POLYHEAD_TOP_LEFT ? "top_left" : "bottom_right";
}

std::string flag(const char *name, int32_t value) {
    return std::string(" --") + name + " " + std::to_string(value);
}

std::string generate_line(const Problem &given) {
    const Problem p = runtime::with_defaults(given);
    std::string line = std::string("polyhead generate NAME --op ") + runtime::op_name(p.op);
    if (p.op != POLYHEAD_SDPA) {
        line += flag("embed-dim", p.embed_dim);
    }
    if (p.op == POLYHEAD_LINEAR) {
        line += flag("out-features", p.out_features);
    } else {
        line += flag("num-heads", p.num_heads);
        if (p.num_kv_heads != p.num_heads) {
            line += flag("num-kv-heads", p.num_kv_heads);
        }
        if (p.op == POLYHEAD_SDPA || int64_t(p.head_dim) * p.num_heads != p.embed_dim) {
            line += flag("head-dim", p.head_dim);
        }
        if (p.head_dim_v != p.head_dim) {
            line += flag("head-dim-v", p.head_dim_v);
        }
    }
    if (p.op == POLYHEAD_MHA && p.cross) {
        line += " --cross";
        if (p.kdim != p.embed_dim) {
            line += flag("kdim", p.kdim);
        }
        if (p.vdim != p.embed_dim) {
            line += flag("vdim", p.vdim);
        }
    }
    if (p.op != POLYHEAD_SDPA) {
        line += p.bias ? " --bias" : " --no-bias";
    }
    if (p.op != POLYHEAD_LINEAR) {
        if (p.causal) {
            line += std::string(" --causal ") + causal_name(p.causal);
        }
        if (p.kv_lengths) {
            line += " --kv-lengths";
        }
        if (p.lse) {
            line += " --lse";
        }
    }
    if (p.seq_len_q > 0) {
        line += flag("seq-len-q", p.seq_len_q);
    }
    if (p.seq_len_kv > 0) {
        line += flag("seq-len-kv", p.seq_len_kv);
    }
    line += std::string(" --dtype ") + runtime::dtype_name(p.dtype);
    if (p.dtype != POLYHEAD_F32) { // only GPU kernels store 16 bits
        line += " --target x86-64-linux-cuda-cuda_capability_80,x86-64-linux-opencl";
    }
    return line;
}

std::string needs_of(const Variant &variant) {
    char names[256];
    polyhead_cpu_feature_names(variant.cpu_features, names, sizeof names);
    std::string text = names[0] ? names : "nothing special";
    if (variant.api != POLYHEAD_CPU) {
        text = std::string("a device, ") + runtime::api_name(variant.api);
        if (variant.capability > 0) {
            text += " " + std::to_string(variant.capability / 10) + "." + std::to_string(variant.capability % 10) + " or newer";
        }
        text += names[0] ? std::string(", and ") + names : "";
    }
    return text;
}

bool for_devices_only(const Kernel &kernel) {
    for (int32_t i = 0; i < kernel.num_variants; ++i) {
        if (kernel.variants[i].api == POLYHEAD_CPU) {
            return false;
        }
    }
    return kernel.num_variants > 0;
}

std::string why_this(const Kernel &kernel) {
    std::string text = std::string(kernel.name) + " computes this problem";
    const Problem &p = kernel.problem;
    const std::string q = p.seq_len_q > 0 ? std::to_string(p.seq_len_q) : "free",
                      kv = p.seq_len_kv > 0 ? std::to_string(p.seq_len_kv) : "free";
    text += p.op == POLYHEAD_LINEAR ? " (rows " + q + ")" : " (seq_len_q " + q + ", seq_len_kv " + kv + ")";
    text += kernel.supported() || for_devices_only(kernel) ? "; variants:" : ", but this CPU lacks what each of its variants needs:";
    for (int32_t i = 0; i < kernel.num_variants; ++i) {
        text += std::string("\n  ") + kernel.variants[i].name + ": needs " + needs_of(kernel.variants[i]);
    }
    return text + "\n";
}

std::string nearest(const Kernel *const *set, size_t count, const Problem &wanted) {
    const Kernel *best = nullptr;
    int fewest = INT32_MAX;
    for (size_t i = 0; i < count; ++i) {
        const int differing = num_differences(set[i]->problem, wanted);
        if (differing < fewest) {
            fewest = differing;
            best = set[i];
        }
    }
    if (!best) {
        return std::string("No kernel of the set has operation ") + runtime::op_name(wanted.op) + ".\n";
    }
    std::string text = std::string("No kernel of the set computes this problem; the nearest, ") + best->name + ", differs:";
    const char *separator = " ";
    all_differences(runtime::with_defaults(best->problem), runtime::with_defaults(wanted),
                    [&](const Field &field, int32_t has, int32_t wants) {
                        text += separator + std::string(field.name) + " " + std::to_string(has) + ", wanted " + std::to_string(wants);
                        separator = "; ";
                    });
    return text + ".\n";
}

} // namespace

const Kernel *find_kernel(const Kernel *const *set, size_t count, const Problem &problem) noexcept {
    const Kernel *best = nullptr;
    for (size_t i = 0; i < count; ++i) {
        if (num_differences(set[i]->problem, problem) > 0) {
            continue;
        }
        if (!best || preference(*set[i], problem) > preference(*best, problem)) {
            best = set[i];
        }
    }
    return best;
}

std::string explain(const Kernel *const *set, size_t count, const Problem &problem) {
    if (const Kernel *kernel = find_kernel(set, count, problem)) {
        return why_this(*kernel);
    }
    return nearest(set, count, problem) + "Add one with:\n  " + generate_line(problem) + "\n";
}

} // namespace polyhead
