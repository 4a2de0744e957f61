// Machine facts per Halide target: GPU APIs, AVX-512, AVX2, SSE and a generic 4-lane machine.
//
// A target is run by processors of several families, so each number is that of the least of them (docs/internals/schedules.md, section 2,
// has the table with its sources).
#include "machine.h"

#include "../contract/apis.h"

namespace polyhead::gen {

using Halide::Target;

namespace {

int api_of(const Target &target) {
    const std::pair<Target::Feature, int> apis[] = {{Target::CUDA, POLYHEAD_CUDA},
                                                    {Target::OpenCL, POLYHEAD_OPENCL},
                                                    {Target::Vulkan, POLYHEAD_VULKAN},
                                                    {Target::Metal, POLYHEAD_METAL},
                                                    {Target::WebGPU, POLYHEAD_WEBGPU}};
    for (const auto &[feature, api] : apis) {
        if (target.has_feature(feature)) {
            return api;
        }
    }
    return POLYHEAD_CPU;
}

} // namespace

Machine machine_of(const Target &target) {
    if (const int api = api_of(target)) {
        // Threads take the place of vectors; 4 floats are the widest load.
        const int shared_bytes = (api == POLYHEAD_CUDA ? 48 : api == POLYHEAD_WEBGPU ? 16 : 32) * 1024;
        Machine machine{4, 255, api, api == POLYHEAD_CUDA ? target.get_cuda_capability_lower_bound() : 0, shared_bytes};
        machine.half_floats = api == POLYHEAD_CUDA;
        return machine;
    }
    if (target.arch == Target::X86) {
        // Each feature has its own flag in a target string: avx2 does not include avx.
        if (target.features_any_of({Target::AVX512, Target::AVX512_Skylake, Target::AVX512_Cannonlake, Target::AVX512_Zen4,
                                    Target::AVX512_Zen5, Target::AVX512_SapphireRapids})) {
            Machine machine{16, 32};
            machine.half_floats = true;
            machine.byte_quads = machine.bf16_pairs =
                target.features_any_of({Target::AVX512_Zen4, Target::AVX512_Zen5, Target::AVX512_SapphireRapids});
            machine.short_pairs = true;
            machine.may_have_amx = target.has_feature(Target::AVX512_SapphireRapids);
            machine.latency = 4;
            // Zen 4 passes a vector of 512 bits in two halves.
            if (target.has_feature(Target::AVX512_Zen4) && !target.features_any_of({Target::AVX512_Zen5, Target::AVX512_SapphireRapids})) {
                machine.multiply_adds = 1;
            }
            return machine;
        }
        const bool avx = target.features_any_of({Target::AVX, Target::AVX2});
        Machine machine{avx ? 8 : 4, 16};
        machine.fused = avx && target.has_feature(Target::FMA);
        machine.half_floats = avx && target.has_feature(Target::F16C);
        machine.short_pairs = avx || target.has_feature(Target::SSE41);
        if (!machine.fused) { // a multiplication and an addition begin in each cycle, of the slower one in 3 or 4 cycles
            machine.multiply_adds = 1;
            machine.latency = 4;
            machine.loads = 1;
        }
        return machine;
    }
    if (target.arch == Target::ARM && target.bits == 64) {
        return {4, 32};
    }
    return {4, 16};
}

std::string target_class(const Target &target) {
    const Machine machine = machine_of(target);
    if (machine.gpu()) {
        return contract::apis[machine.api].name;
    }
    if (target.arch != Target::X86) {
        const std::string text = target.to_string();
        return text.substr(0, text.find('-', text.find('-') + 1)); // architecture and bits
    }
    const bool fma = target.has_feature(Target::AVX2) && target.has_feature(Target::FMA);
    if (machine.registers == 32) {
        return machine.loads_to_spare() ? "x86-64-avx512_zen4" : machine.may_have_amx ? "x86-64-avx512_amx" : "x86-64-avx512";
    }
    return fma ? "x86-64-avx2" : machine.lanes == 8 ? "x86-64-avx" : "x86-64-sse";
}

} // namespace polyhead::gen
