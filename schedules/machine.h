// The properties of a machine that a schedule needs: lanes and registers, or the GPU's API, read from a Halide target once.
#pragma once

#include <string>

#include <Halide.h>
#include <polyhead/c_api.h>

namespace polyhead::gen {

struct Machine {
    int lanes;     // f32 lanes of a vector register
    int registers; // vector registers
    int api = POLYHEAD_CPU;
    int capability = 0; // CUDA compute capability x 10

    int shared_bytes = 0;      // that a block may have everywhere
    bool fused = true;         // multiply and add are one instruction, rounded once
    int multiply_adds = 2;     // of vectors that begin in a cycle
    int latency = 5;           // cycles from a multiply-add to the next one of the same sum
    int loads = 2;             // of numbers or vectors in a cycle
    bool half_floats = false;  // f16 is converted by an instruction
    bool bf16_pairs = false;   // vdpbf16ps: two products of bf16, added to a float
    bool byte_quads = false;   // vpdpbusd: four products of bytes, added to an integer
    bool short_pairs = false;  // vpmaddwd: the sum of two products of 16-bit integers
    bool may_have_amx = false; // tiles of bf16; some machines of the target have them, so they take a variant of their own

    // Sums that must be under way at once, so that a multiply-add can begin whenever there is room.
    int sums_at_once() const { return latency * multiply_adds; }
    // Loads have slots to spare beside multiply-adds.
    bool loads_to_spare() const { return loads > multiply_adds; }
    // Elements of this storage type are multiplied in pairs.
    bool multiplies_pairs(int dtype) const { return bf16_pairs && dtype == POLYHEAD_BF16; }
    bool gpu() const { return api != POLYHEAD_CPU; }
    // Threads may load and compute with four elements at once: Halide 21 writes such code for WebGPU that its compilers refuse, and for
    // Vulkan and Metal it is not tested.
    bool wide() const { return api == POLYHEAD_CUDA || api == POLYHEAD_OPENCL; }
    // Threads that can exchange values without memory.
    int warp() const { return api == POLYHEAD_CUDA && capability >= 70 ? 32 : 1; }
};

Machine machine_of(const Halide::Target &target);
// The kind of machine that measured tilings are shared within: "x86-64-avx512", "x86-64-avx512_amx", "x86-64-avx512_zen4", "x86-64-avx2",
// "cuda" ...
std::string target_class(const Halide::Target &target);

} // namespace polyhead::gen
