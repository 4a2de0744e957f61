// The target `host`: this machine, as far as POLYHEAD_CPU_FEATURES allows. Every name of a target becomes Halide's text here.
#include "../contract/cpu_features.h"
#include "../runtime/cpu_detection.h"
#include "named_targets.h"
#include "plan.h"
#include "target.h"
#include "target_features.h"

namespace polyhead::gen {

namespace {

#if defined(__x86_64__)

// Processors of AMD that code can be ordered for, by family and model.
constexpr struct {
    unsigned family, first_model, last_model;
    const char *tuning;
} amd_processors[] = {
    {0x10, 0x00, 0xff, "tune_amdfam10"}, {0x14, 0x00, 0xff, "tune_btver1"}, {0x15, 0x60, 0x7f, "tune_bdver4"},
    {0x15, 0x30, 0x3f, "tune_bdver3"},   {0x15, 0x10, 0x1f, "tune_bdver2"}, {0x15, 0x02, 0x02, "tune_bdver2"},
    {0x15, 0x00, 0x0f, "tune_bdver1"},   {0x16, 0x00, 0xff, "tune_btver2"}, {0x17, 0x30, 0x3f, "tune_znver2"},
    {0x17, 0x71, 0x71, "tune_znver2"},   {0x17, 0x00, 0x0f, "tune_znver1"}, {0x19, 0x00, 0x0f, "tune_znver3"},
    {0x19, 0x20, 0x5f, "tune_znver3"},   {0x19, 0x10, 0x1f, "tune_znver4"}, {0x19, 0x60, 0x7f, "tune_znver4"},
    {0x19, 0xa0, 0xaf, "tune_znver4"},   {0x1a, 0x00, 0xff, "tune_znver5"},
};

std::string tuning_of_host() {
    constexpr unsigned authentic_amd[] = {0x68747541, 0x69746e65, 0x444d4163}; // in ebx, edx and ecx
    const runtime::Registers vendor = runtime::cpuid(0), leaf1 = runtime::cpuid(1);
    if (vendor.ebx != authentic_amd[0] || vendor.edx != authentic_amd[1] || vendor.ecx != authentic_amd[2]) {
        return "";
    }
    const unsigned family = (leaf1.eax >> 8 & 0xf) + (leaf1.eax >> 20 & 0xff), model = (leaf1.eax >> 4 & 0xf) | (leaf1.eax >> 12 & 0xf0);
    for (const auto &row : amd_processors) {
        if (row.family == family && row.first_model <= model && model <= row.last_model) {
            return row.tuning;
        }
    }
    return "";
}

#else

std::string tuning_of_host() {
    return "";
}

#endif

std::string host_target() {
    Target host = this_system();
    const uint64_t limit = contract::cpu_feature_limit().mask;
    uint64_t found = runtime::detect() & limit;
    if ((found & POLYHEAD_CPU_AVX512_SKYLAKE) == 0) {
        found &= ~POLYHEAD_CPU_AVX512; // without VL, LLVM aborts on the masked stores of narrow vectors
    }
    host.features = features_within(host.architecture, found);
    host.tuning = limit == ~UINT64_C(0) ? tuning_of_host() : "";
    return host.to_string();
}

bool names_host(const std::string &target) {
    return target.rfind("host", 0) == 0 && (target.size() == 4 || target[4] == '-');
}

} // namespace

Target this_system() {
    Target target;
#if defined(__x86_64__) || defined(__i386__)
    target.architecture = "x86";
#elif defined(__aarch64__) || defined(__arm__)
    target.architecture = "arm";
#elif defined(__riscv)
    target.architecture = "riscv";
#else
    target.architecture = "powerpc";
#endif
#if defined(__APPLE__)
    target.system = "osx";
#elif defined(_WIN32)
    target.system = "windows";
#else
    target.system = "linux";
#endif
    target.bits = int(8 * sizeof(void *));
    return target;
}

std::string resolve_target(const std::string &target, std::string *error) {
    error->clear();
    if (!names_host(target)) {
        const std::string of_psabi = psabi_target(target);
        return of_psabi.empty() ? target : of_psabi;
    }
    if (const char *refusal = contract::cpu_feature_limit().refusal) {
        *error = refusal;
        return target;
    }
    return host_target() + target.substr(4);
}

bool this_cpu_has(uint64_t cpu_features) {
    const uint64_t amx = (cpu_features & POLYHEAD_CPU_AMX) != 0 ? runtime::detect_amx() : 0;
    return (cpu_features & ~((runtime::detect() | amx) & contract::cpu_feature_limit().mask)) == 0;
}

} // namespace polyhead::gen
