// The machines that kernels are scheduled for: one row each.
//
// A target is run by processors of several families, so each number is that of the least of them (docs/internals/schedules.md, section 1,
// has the table with its sources).
#ifndef POLYHEAD_MACHINES_MACHINES_H
#define POLYHEAD_MACHINES_MACHINES_H

#include <string>

#include "../contract/apis.h"
#include "../contract/cpu_features.h"
#include "machine.h"

namespace polyhead::gen {

using contract::Architecture;

// What a target says of its processor.
struct Processor {
    Architecture architecture;
    int bits, vector_bits; // vector_bits 0: the target does not say
    uint64_t cpu_features;
};

struct ProcessorRow {
    Architecture architecture;
    int bits, vector_bits; // 0: any
    uint64_t needs;        // CPU features
    Machine machine;
};

constexpr int mega = 1 << 20, kilo = 1 << 10;

// The first row that fits a target. Where multiply and add are two instructions, one of each begins in a cycle, of the slower one in 3 or 4
// cycles. Zen 4 passes a vector of 512 bits in two halves. Intel's CPUs begin a dot product of pairs in the time of four multiply-adds
// (docs/measured/schedules.md, table 15).
inline constexpr ProcessorRow processors[] = {
    // architecture, bits, vector bits, needs, {kind, lanes, registers, fused, multiply-adds, latency, loads, L2, row padding, fast pairs}
    {Architecture::x86, 0, 0, POLYHEAD_CPU_AVX512_FP16, {"x86-64-avx512_amx", 16, 32, true, 2, 4, 2, mega, 0, false}},
    {Architecture::x86,
     0,
     0,
     POLYHEAD_CPU_AVX512_BF16_VNNI | POLYHEAD_CPU_SSE4A | POLYHEAD_CPU_AVXVNNI, // Zen 5
     {"x86-64-avx512", 16, 32, true, 2, 4, 2, mega, 0}},
    {Architecture::x86, 0, 0, POLYHEAD_CPU_AVX512_BF16_VNNI | POLYHEAD_CPU_SSE4A, {"x86-64-avx512_zen4", 16, 32, true, 1, 4, 2, mega, 0}},
    {Architecture::x86, 0, 0, POLYHEAD_CPU_AVX512, {"x86-64-avx512", 16, 32, true, 2, 4, 2, mega, 0}},
    {Architecture::x86, 0, 0, POLYHEAD_CPU_AVX2 | POLYHEAD_CPU_FMA, {"x86-64-avx2", 8, 16, true, 2, 5, 2, 256 * kilo, 16}},
    {Architecture::x86, 0, 0, POLYHEAD_CPU_AVX | POLYHEAD_CPU_FMA, {"x86-64-avx", 8, 16, true, 2, 5, 2, 256 * kilo, 16}},
    {Architecture::x86, 0, 0, POLYHEAD_CPU_AVX, {"x86-64-avx", 8, 16, false, 1, 4, 1, 256 * kilo, 16}},
    {Architecture::x86, 0, 0, 0, {"x86-64-sse", 4, 16, false, 1, 4, 1, 256 * kilo, 16}},
    {Architecture::arm, 64, 0, 0, {"arm-64", 4, 32, true, 2, 5, 2, mega, 0}},
};
inline constexpr Machine unknown_processor{nullptr, 4, 16};

constexpr Machine machine_for(const Processor &processor) {
    Machine machine = unknown_processor;
    for (const ProcessorRow &row : processors) {
        if (row.architecture == processor.architecture && (row.bits == 0 || row.bits == processor.bits) &&
            (row.vector_bits == 0 || row.vector_bits == processor.vector_bits) && (row.needs & ~processor.cpu_features) == 0) {
            machine = row.machine;
            break;
        }
    }
    machine.cpu_features = processor.cpu_features;
    return machine;
}

// Threads take the place of vectors. Halide 21 writes code with wide loads for WebGPU that its compilers refuse; for Vulkan and Metal it is
// not tested. Splits are wrong on Vulkan (lavapipe); on Metal and WebGPU nothing runs.
inline constexpr Device devices[] = {
    // api, shared memory, widest load, warp, from capability, merge lanes, converts f16, stores 16 bits, merges splits, functions
    {POLYHEAD_CUDA, 48 * kilo, 4, 32, 70, 32, true, true, true, DeviceFunctions::cuda},
    {POLYHEAD_OPENCL, 32 * kilo, 4, 1, 0, 8, false, true, true, DeviceFunctions::opencl},
    {POLYHEAD_VULKAN, 32 * kilo, 1, 1, 0, 8, false, false, false, DeviceFunctions::none},
    {POLYHEAD_METAL, 32 * kilo, 1, 1, 0, 8, false, false, false, DeviceFunctions::none},
    {POLYHEAD_WEBGPU, 16 * kilo, 1, 1, 0, 8, false, false, false, DeviceFunctions::none},
};

// The device of an API; of the CPU, none.
constexpr Device device_of(int api) {
    for (const Device &device : devices) {
        if (device.api == api) {
            return device;
        }
    }
    return {};
}

// The device whose machines are of this kind; none where they are CPUs.
inline Device device_of_kind(const std::string &kind) {
    for (const Device &device : devices) {
        if (kind == contract::apis[device.api].name) {
            return device;
        }
    }
    return {};
}

// Code of CUDA that runs on one capability alone, because it has instructions that no other has. Halide 21 has no name for it: its code for
// the capability `as` gets these two lines of PTX. A target with the feature has code for all other devices, too: for those that the
// feature `others` names, unless the target names another.
struct ExactCapability {
    const char *feature;
    int capability, as;
    const char *others, *version, *target;
};
inline constexpr ExactCapability exact_capabilities[] = {
    {"cuda_capability_90a", 90, 86, "cuda_capability_80", ".version 8.0", ".target sm_90a"}};

constexpr const ExactCapability *exact_capability(int capability) {
    for (const ExactCapability &row : exact_capabilities) {
        if (row.capability == capability) {
            return &row;
        }
    }
    return nullptr;
}

constexpr Machine machine_for(const Device &device, int capability, bool exact = false) {
    Machine machine{contract::apis[device.api].name, 4, 255};
    machine.device = device;
    machine.capability = capability;
    machine.exact = exact;
    return machine;
}

} // namespace polyhead::gen
#endif
