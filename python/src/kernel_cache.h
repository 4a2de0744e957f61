// Kernels of this process.
#pragma once

#include <memory>
#include <string>

#include "../../load/kernel.h"

namespace polyhead::python {

using load::LoadedKernel;

// The kernel of this problem, from memory or compiled now; one thread compiles, others that need the same kernel wait for it. With a query
// length it has only the variants that such calls may use: the same variant runs, and the first call waits less. Targets
// are in full. Throws a Refusal.
constexpr int64_t any_seq_len_q = -1;
std::shared_ptr<const LoadedKernel> kernel_for(Problem problem, const std::vector<std::string> &targets, const std::string &tiling,
                                               int64_t seq_len_q, const gen::TuningChoice &tuning, const tools::Limits &limits);
// The kernel of this problem for the best CPU level whose objects the bundle has, and that this process may run. Null: the bundle has none.
std::shared_ptr<const LoadedKernel> bundled_kernel_for(Problem problem, const tools::Limits &limits);
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
