// Target strings become Halide targets here, and nowhere else; `host` becomes this machine.
#include "target.h"

#include "../contract/cpu_features.h"
#include "../machines/machines.h"
#include "../runtime/amx.h"
#include "compile.h"
#include "target_features.h"

namespace polyhead::gen {

using Halide::Target;
namespace cpu_level = contract::cpu_level;

namespace {

// Features whose instructions LLVM may use for a target, beyond the plain target of their architecture, in polyhead's bits. A flag of the
// AVX-512 ladder includes those below it. AMX is only used where it is asked for by name.
constexpr struct {
    Target::Feature feature;
    Target::Arch arch;
    uint64_t bits;
} features_of_targets[] = {
    {Target::SSE41, Target::X86, cpu_level::sse41},
    {Target::AVX, Target::X86, cpu_level::avx},
    {Target::F16C, Target::X86, POLYHEAD_CPU_F16C},
    {Target::FMA, Target::X86, POLYHEAD_CPU_FMA},
    {Target::AVX2, Target::X86, cpu_level::avx | POLYHEAD_CPU_AVX2},
    {Target::AVX512, Target::X86, cpu_level::avx512},
    {Target::AVX512_Skylake, Target::X86, cpu_level::skylake},
    {Target::AVX512_Cannonlake, Target::X86, cpu_level::cannonlake},
    // Halide 21 compiles zen4 code for AMD, which may hold SSE4a.
    {Target::AVX512_Zen4, Target::X86, cpu_level::bf16_vnni | POLYHEAD_CPU_SSE4A},
    {Target::AVX512_Zen5, Target::X86, cpu_level::bf16_vnni | POLYHEAD_CPU_SSE4A | POLYHEAD_CPU_AVXVNNI},
    {Target::AVX512_SapphireRapids, Target::X86, cpu_level::fp16},
    {Target::AVXVNNI, Target::X86, POLYHEAD_CPU_AVXVNNI},
    {Target::ARMDotProd, Target::ARM, POLYHEAD_CPU_ARM_DOT_PROD},
    {Target::ARMFp16, Target::ARM, POLYHEAD_CPU_ARM_FP16},
    {Target::SVE, Target::ARM, POLYHEAD_CPU_ARM_SVE},
    {Target::SVE2, Target::ARM, POLYHEAD_CPU_ARM_SVE | POLYHEAD_CPU_ARM_SVE2},
    {Target::ARMv81a, Target::ARM, POLYHEAD_CPU_ARM_ATOMICS},
    {Target::ARMv82a, Target::ARM, POLYHEAD_CPU_ARM_ATOMICS},
    {Target::ARMv83a, Target::ARM, POLYHEAD_CPU_ARM_ATOMICS},
    {Target::ARMv84a, Target::ARM, POLYHEAD_CPU_ARM_ATOMICS | POLYHEAD_CPU_ARM_DOT_PROD},
    {Target::ARMv85a, Target::ARM, POLYHEAD_CPU_ARM_ATOMICS | POLYHEAD_CPU_ARM_DOT_PROD},
    {Target::ARMv86a, Target::ARM, POLYHEAD_CPU_ARM_ATOMICS | POLYHEAD_CPU_ARM_DOT_PROD},
    {Target::ARMv87a, Target::ARM, POLYHEAD_CPU_ARM_ATOMICS | POLYHEAD_CPU_ARM_DOT_PROD},
    {Target::ARMv88a, Target::ARM, POLYHEAD_CPU_ARM_ATOMICS | POLYHEAD_CPU_ARM_DOT_PROD},
    {Target::ARMv89a, Target::ARM, POLYHEAD_CPU_ARM_ATOMICS | POLYHEAD_CPU_ARM_DOT_PROD},
    {Target::RVV, Target::RISCV, POLYHEAD_CPU_RISCV_VECTOR},
};

} // namespace

uint64_t cpu_features_of(const Target &t) {
    uint64_t bits = 0;
    for (const auto &row : features_of_targets) {
        bits |= row.arch == t.arch && t.has_feature(row.feature) ? row.bits : 0;
    }
    return bits;
}

namespace {

constexpr struct {
    Target::Feature feature;
    int api;
} apis_of_targets[] = {{Target::CUDA, POLYHEAD_CUDA},
                       {Target::OpenCL, POLYHEAD_OPENCL},
                       {Target::Vulkan, POLYHEAD_VULKAN},
                       {Target::Metal, POLYHEAD_METAL},
                       {Target::WebGPU, POLYHEAD_WEBGPU}};

constexpr struct {
    Target::Arch arch;
    Architecture architecture;
} architectures[] = {{Target::X86, Architecture::x86}, {Target::ARM, Architecture::arm}, {Target::RISCV, Architecture::riscv}};

} // namespace

Machine machine_of(const Target &target) {
    for (const auto &row : apis_of_targets) {
        if (target.has_feature(row.feature)) {
            return machine_for(device_of(row.api), row.api == POLYHEAD_CUDA ? target.get_cuda_capability_lower_bound() : 0);
        }
    }
    Architecture architecture = Architecture::other;
    for (const auto &row : architectures) {
        architecture = row.arch == target.arch ? row.architecture : architecture;
    }
    return machine_for(Processor{architecture, target.bits, target.vector_bits, cpu_features_of(target)});
}

std::string target_class(const Target &target) {
    if (const char *kind = machine_of(target).kind) {
        return kind;
    }
    const std::string text = target.to_string();
    return text.substr(0, text.find('-', text.find('-') + 1)); // architecture and bits
}

namespace {

// This machine, as far as POLYHEAD_CPU_FEATURES allows. Halide's code for zen4 may use SSE4a, which only AMD has; its code for Sapphire
// Rapids is the way to dot products of bf16 pairs on Intel.
std::string host_target() {
    Target host = with_allowed_features(Halide::get_host_target());
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse4a")) {
        host = host.without_feature(Target::AVX512_Zen4).without_feature(Target::AVX512_Zen5);
    }
    // What LLVM may use in its code, and no target below it has. It uses AMX only where it is told to.
    if (!__builtin_cpu_supports("avx512fp16") || !__builtin_cpu_supports("gfni")) {
        host = host.without_feature(Target::AVX512_SapphireRapids);
    }
    uint64_t allowed = contract::cpu_feature_limit().mask;
    if ((allowed & POLYHEAD_CPU_AVX512_SKYLAKE) == 0) {
        allowed &= ~POLYHEAD_CPU_AVX512; // without VL, LLVM aborts on the masked stores of narrow vectors
    }
    if (allowed != ~UINT64_C(0)) {
        Target limited(host.os, host.arch, host.bits);
        for (const auto &row : features_of_targets) {
            if (row.arch == host.arch && host.has_feature(row.feature) && (row.bits & ~allowed) == 0) {
                limited.set_feature(row.feature);
            }
        }
        return limited.to_string();
    }
#endif
    return host.to_string();
}

bool names_host(const std::string &target) {
    return target.rfind("host", 0) == 0 && (target.size() == 4 || target[4] == '-');
}

} // namespace

std::string resolve_target(const std::string &target, std::string *error) {
    error->clear();
    if (!names_host(target)) {
        return target;
    }
    if (const char *refusal = contract::cpu_feature_limit().refusal) {
        *error = refusal;
        return target;
    }
    return host_target() + target.substr(4);
}

bool this_cpu_has_amx() {
#ifdef POLYHEAD_HAS_AMX
    return __builtin_cpu_supports("amx-bf16") && (contract::cpu_feature_limit().mask & POLYHEAD_CPU_AMX) != 0;
#else
    return false;
#endif
}

bool parse_target(const std::string &given, Target *target, std::string *error) {
    const std::string text = resolve_target(given, error);
    if (!error->empty()) {
        return false;
    }
    if (text.empty() || !Target::validate_target_string(text)) {
        *error = "target '" + text + "' is not known: expected host or a Halide target such as x86-64-linux-avx2-fma-f16c";
        return false;
    }
    *target = Target(text);
    if (target->has_unknowns()) {
        *error = "target '" + text + "' is incomplete: expected architecture, bits and system such as x86-64-linux";
        return false;
    }
    *error = refused_features(text, *target);
    return error->empty();
}

std::string refuse_target(const std::string &word, bool untested, std::string *full) {
    Target target;
    std::string refusal;
    if (!parse_target(word, &target, &refusal)) {
        return refusal;
    }
    *full = target.to_string();
    const std::string part = untested ? "" : untested_part(target);
    return part.empty() ? ""
                        : "target '" + word + "' is not tested (" + part +
                              "): expected x86-64, plain arm-64, or polyhead generate with --untested-target";
}

} // namespace polyhead::gen
