// Runs one checked call on the CPU. All memory that the kernel needs is allocated before it starts.
#include "cpu_call.h"

#include "../memory/memory.h"
#include "../memory/scratch.h"
#include "../status.h"
#include "../threads/thread_pool.h"
#include "../threads/threads.h"
#include "call.h"
#include "kernel_error.h"
#include "scratch_bytes.h"

namespace polyhead::runtime {

bool cpu_bytes(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args, const CallShape &shape,
               CpuBytes *bytes) noexcept {
    constexpr int64_t most = int64_t(1) << 48; // sums over threads do not overflow; more than an address space has
    *bytes = {scratch_bytes(kernel.problem, variant, args, shape, 1), thread_scratch_bytes(variant, shape)};
    return bytes->of_caller >= 0 && bytes->of_caller < most && bytes->of_helper < most;
}

size_t held_bytes(int64_t bytes) noexcept {
    return static_cast<size_t>(bytes) + Scratch::overhead;
}

polyhead_status run_in_memory(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args, const CallShape &shape,
                              ThreadPool *pool, void *memory, size_t bytes) noexcept {
    polyhead_status status = success();
    CallContext context(pool);
    const ScratchInUse scratch(&context, memory, bytes);
    const int result = Call(kernel, args, shape, &context).run(variant);
    if (result != 0) {
        kernel_failure(kernel.name, result, context, &status);
    }
    return status;
}

polyhead_status run_on_cpu(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args,
                           const CallShape &shape) noexcept {
    const ThreadsInUse threads;
    CpuBytes bytes;
    const bool possible = cpu_bytes(kernel, variant, args, shape, &bytes);
    void *const memory = possible ? take_memory(held_bytes(bytes.of_caller)) : nullptr;
    polyhead_status status;
    if (!memory || (threads.pool() && !threads.pool()->hold_scratch(held_bytes(bytes.of_helper)))) {
        refuse(&status, POLYHEAD_OUT_OF_MEMORY, "kernel %s: %lld bytes of scratch memory could not be allocated", kernel.name,
               static_cast<long long>(scratch_bytes(kernel.problem, variant, args, shape, threads.threads())));
    } else {
        status = run_in_memory(kernel, variant, args, shape, threads.pool(), memory, held_bytes(bytes.of_caller));
    }
    give_memory(memory);
    return status;
}

} // namespace polyhead::runtime
