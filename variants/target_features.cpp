// The table of Halide's features: what may stand in a target.
#include "target_features.h"

#include <algorithm>
#include <iterator>

namespace polyhead::gen {
namespace {

using Halide::Target;

constexpr FeatureUse allowed = FeatureUse::allowed, untested = FeatureUse::untested, refused = FeatureUse::refused;

constexpr const char *no_question = "no question to a CPU is known that tells whether it has it";
constexpr const char *not_linked = "libpolyhead.a has no functions for it";
constexpr const char *length = "its code is right for one vector length alone, which nothing checks before a call";
constexpr const char *trace = "kernels would print, and the functions for it are not in libpolyhead.a";
constexpr const char *never_run = "compilers have read its code, but it was never run";
constexpr const char *sanitizer = "it links only with a program that has the same sanitizer";
constexpr const char *other = "it is for a processor or system whose code was never run";

constexpr FeatureRule rules[] = {
    // Instructions of x86 that dispatch asks the CPU for: cpu_features_of().
    {Target::SSE41, allowed, ""},
    {Target::AVX, allowed, ""},
    {Target::AVX2, allowed, ""},
    {Target::AVXVNNI, allowed, ""},
    {Target::FMA, allowed, ""},
    {Target::F16C, allowed, ""},
    {Target::AVX512, allowed, ""},
    {Target::AVX512_Skylake, allowed, ""},
    {Target::AVX512_Cannonlake, allowed, ""},
    {Target::AVX512_SapphireRapids, allowed, ""},
    {Target::AVX512_Zen4, allowed, ""},
    {Target::AVX512_Zen5, allowed, ""},
    {Target::AVX512_KNL, refused, "its CPUs lack AVX-512 VL, without which no code for them can be made"},
    {Target::FMA4, refused, no_question},
    {Target::AVX10_1, refused, no_question},
    {Target::X86APX, refused, no_question},
    // Devices.
    {Target::CUDA, allowed, ""},
    {Target::CUDACapability30, allowed, ""},
    {Target::CUDACapability32, allowed, ""},
    {Target::CUDACapability35, allowed, ""},
    {Target::CUDACapability50, allowed, ""},
    {Target::CUDACapability61, allowed, ""},
    {Target::CUDACapability70, allowed, ""},
    {Target::CUDACapability75, allowed, ""},
    {Target::CUDACapability80, allowed, ""},
    {Target::CUDACapability86, allowed, ""},
    {Target::OpenCL, allowed, ""},
    {Target::CLDoubles, allowed, ""},
    {Target::CLHalf, allowed, ""},
    {Target::CLAtomics64, allowed, ""},
    {Target::Vulkan, allowed, ""},
    {Target::VulkanInt8, allowed, ""},
    {Target::VulkanInt16, allowed, ""},
    {Target::VulkanInt64, allowed, ""},
    {Target::VulkanFloat16, allowed, ""},
    {Target::VulkanFloat64, allowed, ""},
    {Target::VulkanV10, allowed, ""},
    {Target::VulkanV12, allowed, ""},
    {Target::VulkanV13, allowed, ""},
    {Target::SPIRV, allowed, ""},
    {Target::Metal, untested, never_run},
    {Target::WebGPU, untested, never_run},
    {Target::D3D12Compute, untested, never_run},
    {Target::EGL, refused, not_linked},
    // What every kernel has, whether the target names it or not.
    {Target::UserContext, allowed, ""},
    {Target::NoRuntime, allowed, ""},
    {Target::NoBoundsQuery, allowed, ""},
    // How code is written.
    {Target::ASAN, untested, sanitizer},
    {Target::TSAN, untested, sanitizer},
    {Target::EnableBacktraces, allowed, ""},
    {Target::StrictFloat, allowed, ""},
    {Target::LargeBuffers, allowed, ""},
    {Target::LLVMLargeCodeModel, allowed, ""},
    {Target::EnableLLVMLoopOpt, allowed, ""},
    {Target::MSAN, refused, not_linked},
    {Target::SanitizerCoverage, refused, not_linked},
    {Target::JIT, refused, "kernels of a library are not compiled inside of the program that calls them"},
    {Target::Debug, refused, "kernels would print"},
    {Target::Profile, refused, trace},
    {Target::ProfileByTimer, refused, trace},
    {Target::TraceLoads, refused, trace},
    {Target::TraceStores, refused, trace},
    {Target::TraceRealizations, refused, trace},
    {Target::TracePipeline, refused, trace},
    {Target::NoAsserts, refused, "memory that is refused would end the program"},
    {Target::CPlusPlusMangling, refused, "NAME.h declares the names of C"},
    {Target::FuzzFloatStores, refused, "it makes results wrong on purpose"},
    {Target::CheckUnsafePromises, refused, "it is for the development of Halide"},
    {Target::EmbedBitcode, refused, "it is for the development of Halide"},
    // Code that was never run.
    {Target::SVE, untested, length},
    {Target::SVE2, untested, length},
    {Target::RVV, untested, length},
    {Target::ARMDotProd, untested, no_question},
    {Target::ARMFp16, untested, no_question},
    {Target::ARMv8a, untested, no_question},
    {Target::ARMv81a, untested, no_question},
    {Target::ARMv82a, untested, no_question},
    {Target::ARMv83a, untested, no_question},
    {Target::ARMv84a, untested, no_question},
    {Target::ARMv85a, untested, no_question},
    {Target::ARMv86a, untested, no_question},
    {Target::ARMv87a, untested, no_question},
    {Target::ARMv88a, untested, no_question},
    {Target::ARMv89a, untested, no_question},
    {Target::ARMv7s, untested, other},
    {Target::NoNEON, untested, other},
    {Target::VSX, untested, other},
    {Target::POWER_ARCH_2_07, untested, other},
    {Target::HexagonDma, untested, other},
    {Target::HVX_128, untested, other},
    {Target::HVX_v62, untested, other},
    {Target::HVX_v65, untested, other},
    {Target::HVX_v66, untested, other},
    {Target::HVX_v68, untested, other},
    {Target::SoftFloatABI, untested, other},
    {Target::WasmMvpOnly, untested, other},
    {Target::WasmSimd128, untested, other},
    {Target::WasmThreads, untested, other},
    {Target::WasmBulkMemory, untested, other},
    {Target::Semihosting, untested, other},
    {Target::Simulator, untested, other},
};

template <typename Action> void for_each_feature(const Target &target, const Action &action) {
    for (int i = 0; i < Target::FeatureEnd; i++) {
        const auto feature = static_cast<Target::Feature>(i);
        if (target.has_feature(feature)) {
            action(feature);
        }
    }
}

FeatureUse use_of(Target::Feature feature) {
    const FeatureRule *rule = feature_rule(feature);
    return rule ? rule->use : untested;
}

} // namespace

const FeatureRule *feature_rule(Target::Feature feature) {
    const auto *rule = std::find_if(std::begin(rules), std::end(rules), [&](const FeatureRule &r) { return r.feature == feature; });
    return rule == std::end(rules) ? nullptr : rule;
}

std::string refused_features(const std::string &text, const Target &target) {
    std::string refusal;
    for_each_feature(target, [&](Target::Feature feature) {
        if (refusal.empty() && use_of(feature) == refused) {
            refusal = "target '" + text + "': found " + Target::feature_to_name(feature) + ", expected no such feature, because " +
                      feature_rule(feature)->reason;
        }
    });
    return refusal;
}

std::string untested_part(const Target &target) {
    if (target.bits != 64 || (target.arch != Target::X86 && target.arch != Target::ARM)) {
        return "code for this processor was never run";
    }
    std::string part;
    for_each_feature(target, [&](Target::Feature feature) {
        if (part.empty() && use_of(feature) == untested) {
            const FeatureRule *rule = feature_rule(feature);
            part = Target::feature_to_name(feature) + std::string(": ") + (rule ? rule->reason : "it is not known here");
        }
    });
    return part.empty() && target.vector_bits != 0 ? std::string("vector_bits: ") + length : part;
}

Target with_allowed_features(const Target &target) {
    Target kept = target;
    kept.vector_bits = 0;
    for_each_feature(target, [&](Target::Feature feature) { kept.set_feature(feature, use_of(feature) == allowed); });
    return kept;
}

} // namespace polyhead::gen
