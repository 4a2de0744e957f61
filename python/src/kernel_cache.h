// Kernels of this process.
#pragma once

#include <memory>
#include <string>

#include "../../load/kernel.h"

namespace polyhead::python {

using load::LoadedKernel;

constexpr int64_t any_seq_len_q = -1;

// For which calls a kernel is wanted: with so many queries, and query heads of a key/value head where the problem leaves them free (0:
// any). The kernel has only the variants that such calls may use: the same variant runs, and the first call waits less.
struct CallsOf {
    int64_t seq_len_q = any_seq_len_q, group_size = 0;
};

// The kernel of this problem, from memory or compiled now; one thread compiles, others that need the same kernel wait for it. Targets
// are in full. Throws a Refusal.
std::shared_ptr<const LoadedKernel> kernel_for(Problem problem, const std::vector<std::string> &targets, const std::string &tiling,
                                               const CallsOf &calls, const gen::TuningChoice &tuning, const tools::Limits &limits);
// A kernel for calls of sdpa() on this CPU: of the bundle, or one that serves other calls, too, so that few are compiled. Where a tuning
// record was made for such a call, it is the kernel of this problem alone.
std::shared_ptr<const LoadedKernel> common_kernel_for(Problem problem, int64_t seq_len_q, const tools::Limits &limits);
// How many kernels stay in memory, those that were used last: $POLYHEAD_KERNELS_KEPT, or 256. Others are unloaded with their last
// object of Python.
size_t kernels_kept();
// Removes all compiled kernels from the memory.
void clear_kernels();

// Throws a Refusal where there is a failure.
void raise(const load::Failure &failure);

// Limits of the environment, and a check for Python's signals while the compiler works: a pending KeyboardInterrupt is thrown as
// Interrupted, with Python's error set in this thread.
struct Interrupted {};
tools::Limits interruptible(tools::Limits limits);
tools::Limits default_limits();

} // namespace polyhead::python
