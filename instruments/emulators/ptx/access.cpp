// Addresses of global, shared and local memory become addresses of the host, and races between blocks are found.
#include "access.h"

#include <cstdio>

namespace polyhead::cuda_driver {

namespace {

std::string hexadecimal(uint64_t value) {
    char text[32];
    std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
    return text;
}

// Blocks run in any order, so what one writes no other may read or write otherwise before the launch ends. Bytes alone are not followed.
bool note_block(Warp &warp, const Instruction &instruction, const Access &access, const Allocation &allocation, int lane,
                const void *value) {
    const uint64_t launch = warp.launch->id;
    if (bytes_of(instruction.type) < 2 || (!access.write && allocation.writers_launch != launch)) {
        return true;
    }
    if (allocation.writers_launch != launch) {
        allocation.writers.assign((allocation.end - allocation.begin) / 2 + 1, 0);
        allocation.writers_launch = launch;
    }
    const size_t first = (access.address[lane] - allocation.begin) / 2, count = static_cast<size_t>(access.bytes) / 2;
    for (size_t place = first; place < first + count; place++) {
        uint32_t &writer = allocation.writers[place];
        const bool foreign = writer != 0 && writer != warp.block->number;
        if (foreign && !(access.write && std::memcmp(access.host[lane], value, static_cast<size_t>(access.bytes)) == 0)) {
            return warp.fail(FaultKind::launch, instruction,
                             "race in global memory: " + described(warp, access, lane) + ", which block number " +
                                 std::to_string(writer - 1) + " of the same launch wrote");
        }
        writer = access.write ? warp.block->number : writer;
    }
    return true;
}

template <class T> void add_addresses(const Warp &warp, const Operand &base, int64_t displacement, Access &access) {
    const T *from = values<T>(warp, base);
    for (int lane = 0; lane < lanes; lane++) {
        access.address[lane] = static_cast<uint64_t>(from[lane]) + static_cast<uint64_t>(displacement);
    }
}

} // namespace

std::string described(const Warp &warp, const Access &access, int lane) {
    const uint32_t *block = warp.launch->block;
    const uint32_t thread = static_cast<uint32_t>(warp.thread(lane));
    return "thread (" + std::to_string(thread % block[0]) + ", " + std::to_string(thread / block[0] % block[1]) + ", " +
           std::to_string(thread / block[0] / block[1]) + "), lane " + std::to_string(lane) + ", " + (access.write ? "writes " : "reads ") +
           std::to_string(access.bytes) + " bytes at " + hexadecimal(access.address[lane]);
}

bool lookup_global(Warp &warp, const Instruction &instruction, Access &access, int lane, const void *value) {
    const Allocation *&known = warp.launch->found[static_cast<size_t>(instruction.index)];
    const uint64_t at = access.address[lane], bytes = static_cast<uint64_t>(access.bytes);
    if (!known || at < known->begin || at + bytes > known->end) {
        const Allocation *found = warp.launch->memory->find(at, bytes);
        if (!found) {
            return warp.fail(FaultKind::illegal_address, instruction,
                             described(warp, access, lane) + " in global memory: " + warp.launch->memory->describe(at));
        }
        known = found;
    }
    if (access.write && !known->writable) {
        return warp.fail(FaultKind::illegal_address, instruction, described(warp, access, lane) + ", which is constant");
    }
    access.host[lane] = known->host.get() + (at - known->begin);
    return note_block(warp, instruction, access, *known, lane, value);
}

bool lookup_shared(Warp &warp, const Instruction &instruction, Access &access, int lane, uint64_t offset) {
    SharedMemory &shared = warp.block->shared;
    if (offset < shared.base() || offset > shared.size() || shared.size() - offset < static_cast<uint64_t>(access.bytes)) {
        return warp.fail(FaultKind::illegal_address, instruction,
                         described(warp, access, lane) + " in shared memory, of which the block has " +
                             std::to_string(shared.size() - shared.base()) + " bytes" +
                             (shared.base() ? " from " + std::to_string(shared.base()) + " on" : ""));
    }
    if (shared.touches_barrier(offset, access.bytes)) {
        return warp.fail(FaultKind::launch, instruction, described(warp, access, lane) + ", where a barrier is");
    }
    access.host[lane] = shared.data() + offset;
    return true;
}

bool lookup_local(Warp &warp, const Instruction &instruction, Access &access, int lane, uint64_t offset) {
    const size_t size = warp.launch->kernel->local_bytes;
    if (offset > size || size - offset < static_cast<uint64_t>(access.bytes)) {
        return warp.fail(FaultKind::illegal_address, instruction,
                         described(warp, access, lane) + " in local memory, of which a thread has " + std::to_string(size) + " bytes");
    }
    access.host[lane] = warp.local_memory.data() + static_cast<size_t>(lane) * size + offset;
    return true;
}

void find_addresses(const Warp &warp, const Operand &base, int64_t displacement, Access &access) {
    if (base.width == 4) {
        add_addresses<uint32_t>(warp, base, displacement, access);
    } else {
        add_addresses<uint64_t>(warp, base, displacement, access);
    }
    for (char *&host : access.host) {
        host = access.nowhere;
    }
}

bool misaligned(Warp &warp, const Instruction &instruction, const Access &access, int lane) {
    return warp.fail(FaultKind::misaligned, instruction, described(warp, access, lane) + ", which is not a multiple of its size");
}

bool race_in_shared(Warp &warp, const Instruction &instruction, const Access &access, int lane, int other) {
    const std::string who = described(warp, access, lane) + ", thread number " + std::to_string(warp.thread(lane));
    const size_t offset = static_cast<size_t>(access.host[lane] - warp.block->shared.data());
    if (warp.block->shared.copy_under_way(offset, access.bytes)) {
        return warp.fail(FaultKind::launch, instruction,
                         "race in shared memory: " + who + ", where a copy of thread number " + std::to_string(other) +
                             " is under way that was not waited for");
    }
    return warp.fail(FaultKind::launch, instruction,
                     "race in shared memory: " + who + ", with thread number " + std::to_string(other) + " and no barrier between");
}

} // namespace polyhead::cuda_driver
