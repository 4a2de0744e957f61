// The table of features: what may stand in a target, and what code with it needs of a CPU.
#include "target_features.h"

#include <algorithm>
#include <iterator>

#include "../contract/cpu_features.h"

namespace polyhead::gen {
namespace {

namespace cpu_level = contract::cpu_level;

constexpr const char *any = nullptr;
constexpr FeatureUse allowed = FeatureUse::allowed, untested = FeatureUse::untested, refused = FeatureUse::refused;

constexpr const char *no_question = "no question to a CPU is known that tells whether it has it";
constexpr const char *not_linked = "libpolyhead.a has no functions for it";
constexpr const char *length = "its code is right for one vector length alone, which nothing checks before a call";
constexpr const char *trace = "kernels would print, and the functions for it are not in libpolyhead.a";
constexpr const char *never_run = "compilers have read its code, but it was never run";
constexpr const char *sanitizer = "it links only with a program that has the same sanitizer";
constexpr const char *other = "it is for a processor or system whose code was never run";

constexpr FeatureRule rules[] = {
    // Instructions of x86 that dispatch asks the CPU for. A flag of the AVX-512 ladder includes those below it. AMX is only used where it
    // is
    // asked for by name. Halide 21 compiles zen4 code for AMD, which may hold SSE4a; its code for Sapphire Rapids is the way to dot
    // products
    // of bf16 pairs on Intel.
    {"sse41", "x86", allowed, "", cpu_level::sse41},
    {"avx", "x86", allowed, "", cpu_level::avx},
    {"avx2", "x86", allowed, "", cpu_level::avx | POLYHEAD_CPU_AVX2},
    {"avxvnni", "x86", allowed, "", POLYHEAD_CPU_AVXVNNI},
    {"fma", "x86", allowed, "", POLYHEAD_CPU_FMA},
    {"f16c", "x86", allowed, "", POLYHEAD_CPU_F16C},
    {"avx512", "x86", allowed, "", cpu_level::avx512},
    {"avx512_skylake", "x86", allowed, "", cpu_level::skylake},
    {"avx512_cannonlake", "x86", allowed, "", cpu_level::cannonlake},
    {"avx512_sapphirerapids", "x86", allowed, "", cpu_level::fp16},
    {"avx512_zen4", "x86", allowed, "", cpu_level::bf16_vnni | POLYHEAD_CPU_SSE4A},
    {"avx512_zen5", "x86", allowed, "", cpu_level::bf16_vnni | POLYHEAD_CPU_SSE4A | POLYHEAD_CPU_AVXVNNI},
    {"avx512_knl", "x86", refused, "its CPUs lack AVX-512 VL, without which no code for them can be made", 0},
    {"fma4", "x86", refused, no_question, 0},
    {"avx10_1", "x86", refused, no_question, 0},
    {"x86apx", "x86", refused, no_question, 0},
    // Devices.
    {"cuda", any, allowed, "", 0},
    {"cuda_capability_30", any, allowed, "", 0},
    {"cuda_capability_32", any, allowed, "", 0},
    {"cuda_capability_35", any, allowed, "", 0},
    {"cuda_capability_50", any, allowed, "", 0},
    {"cuda_capability_61", any, allowed, "", 0},
    {"cuda_capability_70", any, allowed, "", 0},
    {"cuda_capability_75", any, allowed, "", 0},
    {"cuda_capability_80", any, allowed, "", 0},
    {"cuda_capability_86", any, allowed, "", 0},
    {"cuda_capability_90a", any, allowed, "", 0}, // not one of Halide's: capability 9.0 and no other (machines.h)
    {"opencl", any, allowed, "", 0},
    {"cl_doubles", any, allowed, "", 0},
    {"cl_half", any, allowed, "", 0},
    {"cl_atomics64", any, allowed, "", 0},
    {"vulkan", any, allowed, "", 0},
    {"vk_int8", any, allowed, "", 0},
    {"vk_int16", any, allowed, "", 0},
    {"vk_int64", any, allowed, "", 0},
    {"vk_float16", any, allowed, "", 0},
    {"vk_float64", any, allowed, "", 0},
    {"vk_v10", any, allowed, "", 0},
    {"vk_v12", any, allowed, "", 0},
    {"vk_v13", any, allowed, "", 0},
    {"spirv", any, allowed, "", 0},
    {"metal", any, untested, never_run, 0},
    {"webgpu", any, untested, never_run, 0},
    {"d3d12compute", any, untested, never_run, 0},
    {"egl", any, refused, not_linked, 0},
    // What every kernel has, whether the target names it or not.
    {"user_context", any, allowed, "", 0},
    {"no_runtime", any, allowed, "", 0},
    {"no_bounds_query", any, allowed, "", 0},
    // How code is written.
    {"asan", any, untested, sanitizer, 0},
    {"tsan", any, untested, sanitizer, 0},
    {"enable_backtraces", any, allowed, "", 0},
    {"strict_float", any, allowed, "", 0},
    {"large_buffers", any, allowed, "", 0},
    {"llvm_large_code_model", any, allowed, "", 0},
    {"enable_llvm_loop_opt", any, allowed, "", 0},
    {"msan", any, refused, not_linked, 0},
    {"sanitizer_coverage", any, refused, not_linked, 0},
    {"jit", any, refused, "kernels of a library are not compiled inside of the program that calls them", 0},
    {"debug", any, refused, "kernels would print", 0},
    {"profile", any, refused, trace, 0},
    {"profile_by_timer", any, refused, trace, 0},
    {"trace_loads", any, refused, trace, 0},
    {"trace_stores", any, refused, trace, 0},
    {"trace_realizations", any, refused, trace, 0},
    {"trace_pipeline", any, refused, trace, 0},
    {"no_asserts", any, refused, "memory that is refused would end the program", 0},
    {"c_plus_plus_name_mangling", any, refused, "NAME.h declares the names of C", 0},
    {"fuzz_float_stores", any, refused, "it makes results wrong on purpose", 0},
    {"check_unsafe_promises", any, refused, "it is for the development of Halide", 0},
    {"embed_bitcode", any, refused, "it is for the development of Halide", 0},
    // Code that was never run.
    {"sve", "arm", untested, length, POLYHEAD_CPU_ARM_SVE},
    {"sve2", "arm", untested, length, POLYHEAD_CPU_ARM_SVE | POLYHEAD_CPU_ARM_SVE2},
    {"rvv", "riscv", untested, length, POLYHEAD_CPU_RISCV_VECTOR},
    {"arm_dot_prod", "arm", untested, no_question, POLYHEAD_CPU_ARM_DOT_PROD},
    {"arm_fp16", "arm", untested, no_question, POLYHEAD_CPU_ARM_FP16},
    {"armv8a", "arm", untested, no_question, 0},
    {"armv81a", "arm", untested, no_question, POLYHEAD_CPU_ARM_ATOMICS},
    {"armv82a", "arm", untested, no_question, POLYHEAD_CPU_ARM_ATOMICS},
    {"armv83a", "arm", untested, no_question, POLYHEAD_CPU_ARM_ATOMICS},
    {"armv84a", "arm", untested, no_question, POLYHEAD_CPU_ARM_ATOMICS | POLYHEAD_CPU_ARM_DOT_PROD},
    {"armv85a", "arm", untested, no_question, POLYHEAD_CPU_ARM_ATOMICS | POLYHEAD_CPU_ARM_DOT_PROD},
    {"armv86a", "arm", untested, no_question, POLYHEAD_CPU_ARM_ATOMICS | POLYHEAD_CPU_ARM_DOT_PROD},
    {"armv87a", "arm", untested, no_question, POLYHEAD_CPU_ARM_ATOMICS | POLYHEAD_CPU_ARM_DOT_PROD},
    {"armv88a", "arm", untested, no_question, POLYHEAD_CPU_ARM_ATOMICS | POLYHEAD_CPU_ARM_DOT_PROD},
    {"armv89a", "arm", untested, no_question, POLYHEAD_CPU_ARM_ATOMICS | POLYHEAD_CPU_ARM_DOT_PROD},
    {"armv7s", "arm", untested, other, 0},
    {"no_neon", "arm", untested, other, 0},
    {"vsx", "powerpc", untested, other, 0},
    {"power_arch_2_07", "powerpc", untested, other, 0},
    {"hexagon_dma", any, untested, other, 0},
    {"hvx", "hexagon", untested, other, 0},
    {"hvx_128", "hexagon", untested, other, 0},
    {"hvx_v62", "hexagon", untested, other, 0},
    {"hvx_v65", "hexagon", untested, other, 0},
    {"hvx_v66", "hexagon", untested, other, 0},
    {"hvx_v68", "hexagon", untested, other, 0},
    {"soft_float_abi", any, untested, other, 0},
    {"wasm_mvponly", "wasm", untested, other, 0},
    {"wasm_simd128", "wasm", untested, other, 0},
    {"wasm_threads", "wasm", untested, other, 0},
    {"wasm_bulk_memory", "wasm", untested, other, 0},
    {"semihosting", any, untested, other, 0},
    {"simulator", any, untested, other, 0},
};

bool has(const std::string &architecture, const FeatureRule &rule) {
    return !rule.architecture || architecture == rule.architecture;
}

} // namespace

const FeatureRule *feature_rule(const std::string &name) {
    const auto *rule = std::find_if(std::begin(rules), std::end(rules), [&](const FeatureRule &r) { return r.name == name; });
    return rule == std::end(rules) ? nullptr : rule;
}

std::string refused_features(const std::string &text, const Target &target) {
    for (const std::string &name : target.features) {
        const FeatureRule &rule = *feature_rule(name);
        const bool strange = !has(target.architecture, rule);
        if (strange || rule.use == refused) {
            return "target '" + text + "': found " + name + ", expected no such feature, because " +
                   (strange ? std::string("it is one of ") + rule.architecture : rule.reason);
        }
    }
    if (target.architecture == "riscv" && (!target.has("rvv") || target.vector_bits == 0)) {
        return "target '" + text +
               "': expected rvv and vector_bits_N, such as riscv-64-linux-rvv-vector_bits_256: Halide makes no other code for RISC-V";
    }
    return "";
}

std::string untested_part(const Target &target) {
    if (target.bits != 64 || (target.architecture != "x86" && target.architecture != "arm")) {
        return "code for this processor was never run";
    }
    for (const std::string &name : target.features) {
        if (const FeatureRule &rule = *feature_rule(name); rule.use == untested) {
            return name + ": " + rule.reason;
        }
    }
    return target.vector_bits != 0 ? std::string("vector_bits: ") + length : "";
}

uint64_t cpu_features_of(const Target &target) {
    uint64_t bits = 0;
    for (const std::string &name : target.features) {
        const FeatureRule &rule = *feature_rule(name);
        bits |= has(target.architecture, rule) ? rule.cpu_features : 0;
    }
    return bits;
}

std::set<std::string> features_within(const std::string &architecture, uint64_t cpu_features) {
    std::set<std::string> names;
    for (const FeatureRule &rule : rules) {
        if (has(architecture, rule) && rule.use == allowed && rule.cpu_features != 0 && (rule.cpu_features & ~cpu_features) == 0) {
            names.insert(rule.name);
        }
    }
    return names;
}

} // namespace polyhead::gen
