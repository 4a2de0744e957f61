// Chooses a variant: the first of the table that may run.
#include "dispatch.h"

#include <algorithm>

#include "../../contract/cpu_features.h"
#include "../../contract/weight_layout.h"
#include "../cpu_features.h"
#include "../rules/tensor_rules.h"
#include "../status.h"
#include "call_tensors.h"
#include "staging.h"

namespace polyhead::runtime {
namespace {

int32_t api_of(const polyhead_device *device) noexcept {
    return device ? device->api : int32_t(POLYHEAD_CPU);
}

bool serves_length(const polyhead_variant &variant, int64_t seq_len_q) noexcept {
    return seq_len_q >= variant.min_seq_len_q && (variant.max_seq_len_q == 0 || seq_len_q <= variant.max_seq_len_q);
}

// Query heads of a key/value head that a variant serves.
struct GroupSizes {
    int32_t min = 0, max = 0; // max 0: no limit
    bool have(int64_t size) const noexcept { return size >= min && (max == 0 || size <= max); }
};

GroupSizes group_sizes(const KernelTable &kernel, const polyhead_variant &variant) noexcept {
    return {kernel.variants.later(variant, &polyhead_variant::min_group_size),
            kernel.variants.later(variant, &polyhead_variant::max_group_size)};
}

bool serves_shape(const KernelTable &kernel, const polyhead_variant &variant, const CallShape &shape) noexcept {
    return serves_length(variant, shape.seq_len_q) && group_sizes(kernel, variant).have(shape.group_size());
}

void say_group_sizes(const GroupSizes &sizes, Text *text) noexcept {
    sizes.max == 0 ? text->append("serves group sizes from %d", sizes.min)
                   : text->append("serves group sizes %d to %d", sizes.min, sizes.max);
}

// Facts of a later version may be requirements: a variant that has some is left to a library that knows them.
bool only_known_facts(const KernelTable &kernel, const polyhead_variant &variant) noexcept {
    const auto *const bytes = reinterpret_cast<const unsigned char *>(&variant);
    const uint32_t all = kernel.variants.bytes();
    return all <= sizeof variant || std::all_of(bytes + sizeof variant, bytes + all, [](unsigned char byte) { return byte == 0; });
}

bool serves_abi(const KernelTable &kernel, const polyhead_variant &variant) noexcept {
    return variant.abi >= POLYHEAD_ABI_LOWEST && variant.abi <= POLYHEAD_ABI_VERSION && only_known_facts(kernel, variant);
}

bool well_formed(const KernelTable &kernel, const polyhead_variant &variant) noexcept {
    return serves_abi(kernel, variant) && variant.entry && variant.weight_layout == weight_layout_id(kernel.problem);
}

// An environment that is not understood allows nothing: to guess could hide which code a test or a comparison ran.
bool environment_allows(const polyhead_variant &variant) noexcept {
    return variant.api != POLYHEAD_CPU || cpu_feature_limit().refusal == nullptr;
}

bool exactly(const KernelTable &kernel, const polyhead_variant &variant) noexcept {
    return kernel.variants.later(variant, &polyhead_variant::capability_exact) != 0;
}

bool has_capability(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_device *device) noexcept {
    return variant.capability == 0 ||
           (device && (exactly(kernel, variant) ? device->capability == variant.capability : device->capability >= variant.capability));
}

bool has_shared_memory(const polyhead_variant &variant, const polyhead_device *device) noexcept {
    return variant.shared_bytes == 0 || (device && (device->shared_bytes == 0 || device->shared_bytes >= variant.shared_bytes));
}

bool capable(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_device *device) noexcept {
    return has_capability(kernel, variant, device) && has_shared_memory(variant, device);
}

// Blocks of so many queries of a head.
int64_t blocks_of(const CallShape &shape, int64_t queries) noexcept {
    int64_t blocks = 0;
    const int64_t of_head = shape.seq_len_q / queries + (shape.seq_len_q % queries != 0 ? 1 : 0);
    const bool too_many = __builtin_mul_overflow(shape.batch, shape.num_heads, &blocks) || __builtin_mul_overflow(blocks, of_head, &blocks);
    return too_many ? INT64_MAX : blocks;
}

int32_t few_blocks_of(const KernelTable &kernel, const polyhead_variant &variant) noexcept {
    return kernel.variants.later(variant, &polyhead_variant::few_blocks_of);
}

bool has_few_blocks(int32_t queries, const polyhead_device *device, const CallShape &shape) noexcept {
    return queries <= 0 || (device && blocks_of(shape, queries) < device->multiprocessors);
}

void say_few_blocks(int32_t queries, const polyhead_device *device, const CallShape &shape, Text *text) noexcept {
    if (device && !has_few_blocks(queries, device, shape)) {
        text->append("is for fewer than %d blocks of %d queries, as many as the device has multiprocessors, found %lld",
                     device->multiprocessors, queries, static_cast<long long>(blocks_of(shape, queries)));
    }
}

// What address and outer strides of a tensor must be multiples of, in bytes: a load takes as many elements of every tensor.
int64_t alignment_of(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_tensor &t) noexcept {
    const int64_t elements = std::max(1, variant.alignment / dtype_bytes(kernel.problem.dtype));
    return elements * dtype_bytes(t.dtype);
}

// True when address and outer strides of a tensor, as the kernel will get it, are multiples of so many bytes.
bool aligned(const polyhead_tensor &given, int64_t alignment) noexcept {
    if (absent(given)) {
        return true;
    }
    const polyhead_tensor t = given.device ? given : staged_layout(given);
    const auto element = static_cast<uint64_t>(dtype_bytes(t.dtype)); // products may wrap: only their last bits count
    // Host tensors are copied to memory that is aligned for everything; OpenCL memory begins aligned.
    uint64_t bits = 0;
    if (t.device) {
        bits = static_cast<uint64_t>(t.offset) * element | (t.device->api == POLYHEAD_OPENCL ? 0 : reinterpret_cast<uintptr_t>(t.data));
    }
    for (int i = 0; i + 1 < t.rank; ++i) {
        bits |= t.shape[i] > 1 ? static_cast<uint64_t>(t.stride[i]) * element : 0;
    }
    return bits % static_cast<uint64_t>(alignment) == 0;
}

struct Unaligned {
    const char *tensor = nullptr;
    int64_t expected = 0; // bytes
};

Unaligned first_unaligned(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args) noexcept {
    if (variant.alignment <= 1) {
        return {};
    }
    for (const TensorRow &row : kernel.tensors &operand_rows) {
        const polyhead_tensor &tensor = args.*row.tensor;
        const int64_t expected = alignment_of(kernel, variant, tensor);
        if (!aligned(tensor, expected)) {
            return {said_of(row), expected};
        }
    }
    for (const TensorRow &row : kernel.tensors &cache_rows) {
        const polyhead_tensor &cache = args.*row.tensor;
        const int64_t expected = alignment_of(kernel, variant, cache);
        const int64_t width = absent(cache) ? 0 : cache.shape[cache.rank - 1] * dtype_bytes(cache.dtype);
        if (width % expected == 0 && !aligned(cache, expected)) { // other rows are read by elements
            return {said_of(row), expected};
        }
    }
    if (const int64_t pair = 2 * dtype_bytes(args.out.dtype); contract::writes_pairs(kernel.problem) && !aligned(args.out, pair)) {
        return {"out", pair};
    }
    return {};
}

// Only for variants that were not chosen.
void say_why_not(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args, const CallShape &shape,
                 Text *text) noexcept {
    const uint64_t missing = variant.cpu_features & ~cpu_features(variant.cpu_features);
    if (!only_known_facts(kernel, variant)) {
        text->append("has facts that polyhead %s does not know", polyhead_version());
    } else if (!serves_abi(kernel, variant)) {
        text->append("was generated for ABI %u, expected %u", variant.abi, POLYHEAD_ABI_VERSION);
    } else if (!variant.entry) {
        text->append("has no entry");
    } else if (variant.weight_layout != weight_layout_id(kernel.problem)) {
        text->append("reads weight layout %08x, expected %08x", variant.weight_layout, weight_layout_id(kernel.problem));
    } else if (variant.api != api_of(args.device)) {
        text->append("runs on %s", api_name(variant.api));
    } else if (!environment_allows(variant)) {
        text->append("is disabled by POLYHEAD_CPU_FEATURES");
    } else if (missing) {
        char names[128];
        polyhead_cpu_feature_names(missing, names, sizeof names);
        text->append("needs %s", names);
    } else if (!has_capability(kernel, variant, args.device)) {
        text->append("needs compute capability %d.%d%s", variant.capability / 10, variant.capability % 10,
                     exactly(kernel, variant) ? " and no other" : "");
    } else if (!has_shared_memory(variant, args.device)) {
        text->append("needs %d bytes of shared memory, of which a block has %lld", variant.shared_bytes,
                     static_cast<long long>(args.device ? args.device->shared_bytes : 0));
    } else if (!serves_length(variant, shape.seq_len_q)) {
        variant.max_seq_len_q == 0 ? text->append("serves seq_len_q from %d", variant.min_seq_len_q)
                                   : text->append("serves seq_len_q %d to %d", variant.min_seq_len_q, variant.max_seq_len_q);
    } else if (const GroupSizes sizes = group_sizes(kernel, variant); !sizes.have(shape.group_size())) {
        say_group_sizes(sizes, text);
    } else if (const Unaligned found = first_unaligned(kernel, variant, args); found.tensor) {
        text->append("wants address and strides of %s to be multiples of %lld bytes", found.tensor, static_cast<long long>(found.expected));
    }
}

} // namespace

bool runs_on(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_device *device) noexcept {
    return variant.api == api_of(device) && environment_allows(variant) && capable(kernel, variant, device) &&
           (variant.cpu_features & ~cpu_features(variant.cpu_features)) == 0;
}

bool any_runs_on(const KernelTable &kernel, const polyhead_device *device) noexcept {
    bool any = false;
    for (int32_t i = 0; i < kernel.num_variants; ++i) {
        any = any || (serves_abi(kernel, kernel.variants[i]) && runs_on(kernel, kernel.variants[i], device));
    }
    return any;
}

bool eligible(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args, const CallShape &shape,
              Text *why_not) noexcept {
    if (well_formed(kernel, variant) && runs_on(kernel, variant, args.device) && serves_shape(kernel, variant, shape) &&
        !first_unaligned(kernel, variant, args).tensor) {
        why_not ? say_few_blocks(few_blocks_of(kernel, variant), args.device, shape, why_not) : void();
        return true;
    }
    if (why_not) {
        say_why_not(kernel, variant, args, shape, why_not);
    }
    return false;
}

const polyhead_variant *select_variant(const KernelTable &kernel, const polyhead_args &args, const CallShape &shape,
                                       polyhead_status *status) noexcept {
    const polyhead_variant *found = nullptr;
    bool too_little = false; // a variant of the device's API needs a device that has more
    for (int32_t i = 0; i < kernel.num_variants; ++i) {
        const polyhead_variant &variant = kernel.variants[i];
        if (eligible(kernel, variant, args, shape, nullptr)) {
            if (has_few_blocks(few_blocks_of(kernel, variant), args.device, shape)) {
                return &variant;
            }
            found = found ? found : &variant; // unless there is a better one
        }
        too_little = too_little || (variant.api == api_of(args.device) && !capable(kernel, variant, args.device));
    }
    if (found) {
        return found;
    }
    if (!args.device && cpu_feature_limit().refusal) {
        *status = failure(POLYHEAD_UNSUPPORTED, "%s", cpu_feature_limit().refusal);
        return nullptr;
    }
    status->code = too_little ? POLYHEAD_NO_DEVICE : POLYHEAD_UNSUPPORTED;
    Text text(status->message, sizeof status->message);
    text.append("kernel %s: no variant for seq_len_q %lld on %s", kernel.name, static_cast<long long>(shape.seq_len_q),
                args.device ? args.device->name : "this CPU");
    for (int32_t i = 0; i < kernel.num_variants; ++i) {
        const polyhead_variant &variant = kernel.variants[i];
        text.append("%s%s ", i == 0 ? ": " : ", ", variant.name);
        eligible(kernel, variant, args, shape, &text);
    }
    return nullptr;
}

} // namespace polyhead::runtime
