// Runs one checked call on the CPU. All memory that the kernel needs is there before it starts.
#include "cpu_call.h"

#include "../memory/scratch.h"
#include "../status.h"
#include "kernel_error.h"
#include "scratch_bytes.h"

namespace polyhead::runtime {
namespace {

constexpr int64_t most = int64_t(1) << 48; // sums over workers do not overflow; more than an address space has

// With the headers of its blocks, and so that what follows is aligned.
int64_t held(int64_t bytes) noexcept {
    constexpr int64_t unit = Scratch::alignment;
    return bytes < 0 || bytes >= most ? INT64_MAX : (bytes + static_cast<int64_t>(Scratch::overhead) + unit - 1) / unit * unit;
}

} // namespace

int64_t CpuBytes::of(int workers) const noexcept {
    return of_caller == INT64_MAX || of_helper == INT64_MAX ? INT64_MAX : of_caller + (workers - 1) * of_helper;
}

CpuBytes cpu_bytes(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args, const CallShape &shape) noexcept {
    return {held(scratch_bytes(kernel.problem, variant, args, shape, 1)), held(thread_scratch_bytes(variant, shape))};
}

// entry(context): runs the kernel in the scratch memory of the context.
template <typename Entry>
static polyhead_status run_entry(const char *kernel_name, Workers *workers, const CpuMemory &memory, const Entry &entry) noexcept {
    polyhead_status status = success();
    CallContext context(workers, memory.helpers, static_cast<size_t>(memory.bytes.of_helper));
    const ScratchInUse scratch(&context, memory.caller, static_cast<size_t>(memory.bytes.of_caller));
    const int result = entry(&context);
    if (result != 0) {
        kernel_failure(kernel_name, result, context, &status);
    }
    return status;
}

polyhead_status run_in_memory(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args, const CallShape &shape,
                              Workers *workers, const CpuMemory &memory) noexcept {
    return run_entry(kernel.name, workers, memory, [&](CallContext *context) {
        void *const room = __builtin_alloca(Call::bytes_of(kernel));
        return Call::make(room, kernel, args, shape, context)->run(variant);
    });
}

// Takes the memory first.
template <typename Run>
static polyhead_status with_memory(const char *kernel_name, const CpuBytes &bytes, const Resources &resources, const Run &run) noexcept {
    const int64_t all = bytes.of(resources.workers->count());
    CallBlock block;
    if (!block.take(resources.memory, all)) {
        return failure(POLYHEAD_OUT_OF_MEMORY, "kernel %s: %lld bytes of scratch memory could not be allocated", kernel_name,
                       static_cast<long long>(all));
    }
    return run(CpuMemory{bytes, block.get(), block.get() + bytes.of_caller});
}

polyhead_status run_on_cpu(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args, const CallShape &shape,
                           const Resources &resources) noexcept {
    return with_memory(kernel.name, cpu_bytes(kernel, variant, args, shape), resources,
                       [&](const CpuMemory &memory) { return run_in_memory(kernel, variant, args, shape, resources.workers, memory); });
}

polyhead_status run_planned(const KernelTable &kernel, const polyhead_variant &variant, const Call &planned, const polyhead_args &args,
                            const CpuBytes &bytes, const Resources &resources) noexcept {
    return with_memory(kernel.name, bytes, resources, [&](const CpuMemory &memory) {
        return run_entry(kernel.name, resources.workers, memory, [&](CallContext *context) {
            void *const room = __builtin_alloca(planned.bytes());
            return planned.copy(room, kernel.problem, args, context)->run(variant);
        });
    });
}

} // namespace polyhead::runtime
