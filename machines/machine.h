// What a schedule needs to know about a machine, and the questions that it asks.
#ifndef POLYHEAD_MACHINES_MACHINE_H
#define POLYHEAD_MACHINES_MACHINE_H

#include <cstdint>

#include <polyhead/c_api.h>

#include "../contract/cpu_features.h"
#include "products.h"

namespace polyhead::gen {

// Functions of a device that formulas use.
enum class DeviceFunctions : uint8_t { none, opencl, cuda };

// A GPU, as one API shows it.
struct Device {
    int api = POLYHEAD_CPU;      // polyhead_api
    int shared_bytes = 0;        // shared memory that a block may have everywhere
    int widest_load = 1;         // elements that a thread may load at once
    int warp = 1, warp_from = 0; // threads that can exchange values without memory, from this capability on
    // Partial merges of a row side by side, with splits. Each is a chain of loads: on an H100 the step over 32,768 keys takes 0.82 to 0.97
    // of the time with 32 of them. With 32 columns they are as many threads as CUDA gives a block; elsewhere a block has 256.
    int merge_lanes = 1;
    bool converts_f16 = false;  // f16 is converted by an instruction
    bool stores_16_bits = true; // tensors may have elements of 16 bits, and of 8
    bool merges_splits = false; // split frames were run there, and were right
    DeviceFunctions functions = DeviceFunctions::none;
};

// Shared memory of CUDA that a block may ask for, by capability (CUDA C++ Programming Guide, technical specifications). The blocks of a
// multiprocessor share `reserved_shared_bytes` more than the largest one may have: the system takes as much for each block.
struct SharedOnRequest {
    int capability, bytes;
};
inline constexpr SharedOnRequest shared_on_request[] = {
    {80, 163 << 10}, {86, 99 << 10}, {87, 163 << 10}, {89, 99 << 10}, {90, 227 << 10}, {100, 227 << 10}, {120, 99 << 10},
};
constexpr int reserved_shared_bytes = 1 << 10;
// On every device of this capability and, unless it is the only one, of newer ones; below them all, what every device has.
constexpr int least_shared_on_request(int capability, bool exact, int everywhere) {
    int least = 0;
    for (const SharedOnRequest &row : shared_on_request) {
        const bool runs = exact ? row.capability == capability : row.capability >= capability;
        least = runs && (least == 0 || row.bytes < least) ? row.bytes : least;
    }
    return capability >= shared_on_request[0].capability && least > 0 ? least : everywhere;
}

struct Machine {
    const char *kind; // that measured tilings are shared within; null: named by architecture and bits
    int lanes;        // f32 lanes of a vector register
    int registers;    // vector registers

    bool fused = true;     // multiply and add are one instruction, rounded once
    int multiply_adds = 2; // of vectors that begin in a cycle
    int latency = 5;       // cycles from a multiply-add to the next one of the same sum
    int loads = 2;         // of numbers or vectors in a cycle
    int l2_bytes = 256 << 10;
    // Rows that lie 4 KB apart share a set of the L1 cache: floats between them that take less time than sharing; 0: none do.
    int row_padding = 16;
    // A dot product of bf16 pairs begins as often as a multiply-add of floats, whose lanes hold half as many elements.
    bool fast_pairs = true;
    Device device = {};

    // Of the target.
    uint64_t cpu_features = 0;
    int capability = 0; // CUDA compute capability x 10
    bool exact = false; // no device of another capability runs the code

    // Sums that must be under way at once, so that a multiply-add can begin whenever there is room.
    int sums_at_once() const { return latency * multiply_adds; }
    // Loads have slots to spare beside multiply-adds.
    bool loads_to_spare() const { return loads > multiply_adds; }
    // So many sums are in registers, and so many other vectors beside them.
    bool fits(int sums, int others) const { return sums + others <= registers; }
    // Beside a tile of sums there is room for as many other vectors.
    bool many_registers() const { return registers > 16; }

    // The instruction that multiplies elements of this type as they are stored, or null: they become floats.
    const Product *lane_product(int dtype) const { return product_of(dtype, Holder::lane, cpu_features); }
    // The same, of tiles.
    const Product *core_product(int dtype) const { return product_of(dtype, Holder::core, cpu_features); }
    // Has the target all that the required CPU features of the product build on? Then some of its processors have them, too.
    bool some_have(const Product &product) const { return (contract::levels_below(product.required) & ~cpu_features) == 0; }
    // Both operands have this type, and sums are floats.
    bool multiplies_pairs(int dtype) const {
        const Product *product = lane_product(dtype);
        return product && product->sums_floats() && product->k == 2;
    }

    bool gpu() const { return device.api != POLYHEAD_CPU; }
    // The instruction by which a warp multiplies elements of this type as they are stored, or where that is allowed in parts; or null.
    const Product *warp_product(int dtype, bool in_parts = false) const {
        return warp() > 1 ? warp_product_of(dtype, capability, in_parts) : nullptr;
    }
    // The same, of four warps.
    const Product *group_product(int dtype) const { return exact ? group_product_of(dtype, capability) : nullptr; }
    // Shared memory that a block may ask for on every device that runs code of this capability.
    int shared_on_request() const {
        return device.warp > 1 ? least_shared_on_request(capability, exact, device.shared_bytes) : device.shared_bytes;
    }
    // Blocks with so much shared memory that a multiprocessor of every such device runs at once.
    int blocks_at_once(int shared_bytes) const {
        return (shared_on_request() + reserved_shared_bytes) / (shared_bytes + reserved_shared_bytes);
    }
    // Threads that can exchange values without memory.
    int warp() const { return capability >= device.warp_from ? device.warp : 1; }
    // Threads may load and compute with several elements at once.
    bool wide() const { return device.widest_load > 1; }
    // f16 is converted by an instruction.
    bool converts_f16() const {
        constexpr uint64_t needed = POLYHEAD_CPU_AVX | POLYHEAD_CPU_F16C;
        return gpu() ? device.converts_f16 : (needed & ~cpu_features) == 0;
    }
};

} // namespace polyhead::gen
#endif
