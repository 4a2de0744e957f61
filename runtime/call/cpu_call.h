// One checked call on the CPU: how much memory its workers need, and its run in memory that is held.
#ifndef POLYHEAD_RUNTIME_CPU_CALL_H
#define POLYHEAD_RUNTIME_CPU_CALL_H

#include <cstddef>
#include <cstdint>

#include <polyhead/c_api.h>

#include "../rules/validate.h"
#include "call.h"
#include "kernel_table.h"
#include "resources.h"

namespace polyhead::runtime {

// Bytes that are held for the thread of the call, which has what the stages share and its own part, and for each other worker.
struct CpuBytes {
    int64_t of_caller = 0, of_helper = 0;

    // INT64_MAX when they are more than a machine can have.
    int64_t of(int workers) const noexcept;
};

CpuBytes cpu_bytes(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args, const CallShape &shape) noexcept;

// Memory of the workers: of_caller bytes, and of_helper bytes for each of the others.
struct CpuMemory {
    CpuBytes bytes;
    char *caller, *helpers;
};

polyhead_status run_in_memory(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args, const CallShape &shape,
                              Workers *workers, const CpuMemory &memory) noexcept;
// Of an entry with the arguments that a plan has, for these addresses.
polyhead_status run_planned(const KernelTable &kernel, const polyhead_variant &variant, const Call &planned, const polyhead_args &args,
                            const CpuBytes &bytes, const Resources &resources) noexcept;

polyhead_status run_on_cpu(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args, const CallShape &shape,
                           const Resources &resources) noexcept;

} // namespace polyhead::runtime
#endif
