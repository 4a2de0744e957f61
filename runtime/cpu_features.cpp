// What this CPU has, found out once, as far as the environment and the program allow it.
#include "cpu_features.h"

#include <atomic>

#include "../contract/cpu_features.h"
#include "call/call_guard.h"
#include "cpu_detection.h"
#include "status.h"

namespace polyhead::runtime {
namespace {

std::atomic<uint64_t> feature_limit{~UINT64_C(0)}, pretended{0};

// Not a static variable of a function: a child that was forked while another thread made it would wait for that thread forever.
template <uint64_t (*find)() noexcept> uint64_t found_once() noexcept {
    constexpr uint64_t known = UINT64_C(1) << 63;
    static std::atomic<uint64_t> found{0};
    uint64_t features = found.load(std::memory_order_relaxed);
    if (features == 0) {
        features = find() | known;
        found.store(features, std::memory_order_relaxed);
    }
    return features & ~known;
}

} // namespace

uint64_t cpu_features(uint64_t wanted) noexcept {
    uint64_t features = found_once<detect>();
    const uint64_t limit = feature_limit.load(std::memory_order_relaxed) & cpu_feature_limit().mask;
    if (wanted & limit & POLYHEAD_CPU_AMX) {
        features |= found_once<detect_amx>();
    }
    return (features & limit) | pretended.load(std::memory_order_relaxed);
}

uint64_t pretend_cpu_features(uint64_t features) noexcept {
    return pretended.exchange(features);
}

} // namespace polyhead::runtime

uint64_t polyhead_cpu_features(void) {
    const polyhead::runtime::CallGuard guard;
    return polyhead::runtime::cpu_features(~UINT64_C(0));
}

uint64_t polyhead_limit_cpu_features(uint64_t mask) {
    const polyhead::runtime::CallGuard guard;
    return polyhead::runtime::feature_limit.exchange(mask);
}

void polyhead_cpu_feature_names(uint64_t mask, char *text, size_t text_bytes) {
    const polyhead::runtime::CallGuard guard;
    polyhead::runtime::Text names(text, text_bytes);
    const char *separator = "";
    for (const polyhead::contract::CpuFeature &feature : polyhead::contract::cpu_feature_table) {
        if (mask & feature.bit) {
            names.append("%s%s", separator, feature.name);
            separator = " ";
        }
        mask &= ~feature.bit;
    }
    if (mask) {
        names.append("%sunknown", separator);
    }
}
