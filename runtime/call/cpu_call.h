// One checked call on the CPU: how much memory its threads need, and its run in memory that is held.
#ifndef POLYHEAD_RUNTIME_CPU_CALL_H
#define POLYHEAD_RUNTIME_CPU_CALL_H

#include <cstddef>
#include <cstdint>

#include <polyhead/c_api.h>

#include "../rules/validate.h"
#include "kernel_table.h"

namespace polyhead::runtime {

class ThreadPool;

// Bytes on the thread of the caller, which has what the stages share and its own part, and on each helper.
struct CpuBytes {
    int64_t of_caller, of_helper;
};

// False when they are more than a machine can have.
bool cpu_bytes(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args, const CallShape &shape,
               CpuBytes *bytes) noexcept;

// What has to be held for so many bytes of scratch.
size_t held_bytes(int64_t bytes) noexcept;

// memory: aligned, at least held_bytes(of_caller) bytes; the helpers of the pool (null: none) have held_bytes(of_helper).
polyhead_status run_in_memory(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args, const CallShape &shape,
                              ThreadPool *pool, void *memory, size_t bytes) noexcept;

polyhead_status run_on_cpu(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args,
                           const CallShape &shape) noexcept;

} // namespace polyhead::runtime
#endif
