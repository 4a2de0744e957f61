// Chooses a variant: by CPU features and query length only, the first of the table that may run.
#include "dispatch.h"

#include "cpu_features.h"
#include "status.h"
#include "weight_layout.h"

namespace polyhead::runtime {
namespace {

bool serves_length(const polyhead_variant &variant, int64_t seq_len_q) noexcept {
    return seq_len_q >= variant.min_seq_len_q && (variant.max_seq_len_q == 0 || seq_len_q <= variant.max_seq_len_q);
}

bool well_formed(const polyhead_kernel &kernel, const polyhead_variant &variant) noexcept {
    return variant.abi == POLYHEAD_ABI_VERSION && (variant.entry || variant.call) &&
           variant.weight_layout == weight_layout_id(kernel.problem);
}

// Only asked when a variant was passed over.
void say_why_not(const polyhead_kernel &kernel, const polyhead_variant &variant, Text *text) noexcept {
    const uint64_t missing = variant.cpu_features & ~cpu_features(variant.cpu_features);
    if (variant.abi != POLYHEAD_ABI_VERSION) {
        text->append("was generated for ABI %u, expected %u", variant.abi, POLYHEAD_ABI_VERSION);
    } else if (!variant.entry && !variant.call) {
        text->append("has no entry");
    } else if (variant.weight_layout != weight_layout_id(kernel.problem)) {
        text->append("reads weight layout %08x, expected %08x", variant.weight_layout, weight_layout_id(kernel.problem));
    } else if (missing) {
        char names[128];
        polyhead_cpu_feature_names(missing, names, sizeof names);
        text->append("needs %s", names);
    } else if (variant.max_seq_len_q == 0) {
        text->append("serves seq_len_q from %d", variant.min_seq_len_q);
    } else {
        text->append("serves seq_len_q %d to %d", variant.min_seq_len_q, variant.max_seq_len_q);
    }
}

} // namespace

bool runs_here(const polyhead_variant &variant) noexcept {
    return (variant.cpu_features & ~cpu_features(variant.cpu_features)) == 0;
}

bool eligible(const polyhead_kernel &kernel, const polyhead_variant &variant, int64_t seq_len_q, Text *why_not) noexcept {
    if (well_formed(kernel, variant) && runs_here(variant) && serves_length(variant, seq_len_q)) {
        return true;
    }
    if (why_not) {
        say_why_not(kernel, variant, why_not);
    }
    return false;
}

const polyhead_variant *select_variant(const polyhead_kernel &kernel, int64_t seq_len_q, polyhead_status *status) noexcept {
    for (int32_t i = 0; i < kernel.num_variants; ++i) {
        if (eligible(kernel, kernel.variants[i], seq_len_q, nullptr)) {
            return &kernel.variants[i];
        }
    }
    status->code = POLYHEAD_UNSUPPORTED;
    Text text(status->message, sizeof status->message);
    text.append("kernel %s: no variant for seq_len_q %lld on this CPU", kernel.name, static_cast<long long>(seq_len_q));
    for (int32_t i = 0; i < kernel.num_variants; ++i) {
        const polyhead_variant &variant = kernel.variants[i];
        text.append("%s%s ", i == 0 ? ": " : ", ", variant.name);
        eligible(kernel, variant, seq_len_q, &text);
    }
    return nullptr;
}

} // namespace polyhead::runtime
