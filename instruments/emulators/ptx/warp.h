// State of a launch, a block and a warp while PTX runs, and the loops over lanes that instructions are made of.
#ifndef POLYHEAD_INSTRUMENTS_CUDA_DRIVER_WARP_H
#define POLYHEAD_INSTRUMENTS_CUDA_DRIVER_WARP_H

#include "device_memory.h"
#include "program.h"
#include "shared_memory.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace polyhead::cuda_driver {

enum class FaultKind { none, illegal_instruction, illegal_address, misaligned, trap, too_long, launch };

struct Fault {
    FaultKind kind = FaultKind::none;
    std::string text;
};

struct Launch {
    const Kernel *kernel = nullptr;
    DeviceMemory *memory = nullptr;
    uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
    size_t dynamic_shared = 0;
    std::vector<char> parameters;
    uint64_t id = 0; // no two launches have the same
    uint64_t step_limit = 0, steps = 0;
    std::vector<uint64_t> executed, threads; // per instruction: how often a warp, how often a thread did it
    bool count_traffic = false;
    bool truncates = false;                // sums inside of a product of matrices are truncated
    std::vector<uint64_t> traffic;         // per instruction: sectors or passes over the banks
    std::vector<const Allocation *> found; // per instruction: where its last access of global memory was
    Fault fault;
};

struct Block {
    uint32_t index[3] = {0, 0, 0};
    uint32_t number = 0; // counted from 1 on
    SharedMemory shared;
};

// One side of a divergent branch. The last one of the stack runs; the ones before wait at their pc.
struct Path {
    int32_t pc = 0, reconverge = -1;
    uint32_t mask = 0;
};

// A copy into shared memory that its thread has not waited for.
struct Copy {
    size_t offset = 0;
    int bytes = 0;
};
struct Copies {
    std::vector<Copy> open; // not committed
    std::deque<std::vector<Copy>> groups;
};

// Products of a warpgroup (wgmma) that this warp has not waited for. Its part of them are 16 rows. Empty before the first fence.
struct Flight {
    struct Read { // of shared memory
        size_t offset = 0;
        int bytes = 0;
    };
    struct Group {
        std::vector<Operand> registers; // that it reads or writes
        std::vector<Read> reads;
    };
    std::vector<Group> groups;            // the last is not committed
    uint64_t finished = 0;                // groups
    std::vector<uint64_t> sums, operands; // by register: the last group that writes it, that reads it; 0: none
    std::vector<bool> touched;            // by register: by another instruction since the last fence
    std::vector<char> results;            // the registers, as they will be
    uint64_t order = 0;                   // what the warp did, in a number: all warps of a group do the same

    bool any() const { return groups.size() > 1 || (!groups.empty() && !groups.back().registers.empty()); }
    uint64_t open() const { return finished + groups.size(); } // the number of the group that is not committed
};

using PartsWritten = std::array<uint32_t, 4>;

struct Warp {
    Launch *launch = nullptr;
    Block *block = nullptr;
    int index = 0;                // in its block
    uint32_t live = 0;            // lanes that exist and have not left
    uint32_t initial = 0;         // lanes that exist
    uint32_t active = 0;          // lanes that do the current instruction
    uint32_t active_lanes[lanes]; // the same as a mask per lane: 0 or ~0
    std::vector<Path> paths;
    int32_t barrier = -1; // index of the barrier it waits at
    char *registers = nullptr;
    const char *constants = nullptr;
    std::vector<uint32_t> written;   // per register: the lanes that have a value
    std::vector<PartsWritten> parts; // per register that was packed: the lanes of which each part has one
    std::vector<char> local_memory;  // lane after lane
    std::vector<Copies> copies;      // of each lane; none before the first copy
    Flight flight;
    bool yields = false;             // it waits for others at a barrier in memory
    std::vector<char> register_room; // behind `registers`, which is aligned

    bool fail(FaultKind kind, const Instruction &instruction, const std::string &what);
    // False, with a sentence, where only some threads are at an instruction of all of them.
    bool whole(const Instruction &instruction);
    void activate(uint32_t mask) {
        if (mask != active) {
            active = mask;
            for (int lane = 0; lane < lanes; lane++) {
                active_lanes[lane] = 0u - ((mask >> lane) & 1u);
            }
        }
    }
    int thread(int lane) const { return index * lanes + lane; }
};

template <class T> const T *values(const Warp &warp, const Operand &operand) {
    return reinterpret_cast<const T *>((operand.register_id < 0 ? warp.constants : warp.registers) + operand.offset);
}
template <class T> T *target(Warp &warp, const Operand &operand) {
    return reinterpret_cast<T *>(warp.registers + operand.offset);
}

inline uint32_t predicate(const Warp &warp, const Operand &operand) {
    const uint32_t bits = *values<uint32_t>(warp, operand);
    return operand.negated ? ~bits : bits;
}
inline void set_predicate(Warp &warp, const Operand &operand, uint32_t bits) {
    uint32_t *to = target<uint32_t>(warp, operand);
    *to = (*to & ~warp.active) | (bits & warp.active);
}

// Writes the lanes that are active. Without a branch per lane, so that the compiler makes vectors of it.
template <class T> void write_lanes(Warp &warp, const Operand &operand, const T *results) {
    T *to = target<T>(warp, operand);
    if (warp.active == ~0u) {
        std::memcpy(to, results, lanes * sizeof(T));
        return;
    }
    for (int lane = 0; lane < lanes; lane++) {
        to[lane] = warp.active_lanes[lane] ? results[lane] : to[lane];
    }
}

// F::run on 1, 2 or 3 inputs of type T for every lane. Lanes that are not active compute too and are dropped.
template <class T, class F, class R = T> bool unary(Warp &warp, const Instruction &instruction) {
    const T *a = values<T>(warp, instruction.inputs[0]);
    alignas(64) R results[lanes];
    for (int lane = 0; lane < lanes; lane++) {
        results[lane] = F::run(a[lane]);
    }
    write_lanes(warp, instruction.outputs[0], results);
    return true;
}
template <class T, class F, class R = T> bool binary(Warp &warp, const Instruction &instruction) {
    const T *a = values<T>(warp, instruction.inputs[0]), *b = values<T>(warp, instruction.inputs[1]);
    alignas(64) R results[lanes];
    for (int lane = 0; lane < lanes; lane++) {
        results[lane] = F::run(a[lane], b[lane]);
    }
    write_lanes(warp, instruction.outputs[0], results);
    return true;
}
template <class T, class F> bool ternary(Warp &warp, const Instruction &instruction) {
    const T *a = values<T>(warp, instruction.inputs[0]), *b = values<T>(warp, instruction.inputs[1]);
    const T *c = values<T>(warp, instruction.inputs[2]);
    alignas(64) T results[lanes];
    for (int lane = 0; lane < lanes; lane++) {
        results[lane] = F::run(a[lane], b[lane], c[lane]);
    }
    write_lanes(warp, instruction.outputs[0], results);
    return true;
}

} // namespace polyhead::cuda_driver
#endif
