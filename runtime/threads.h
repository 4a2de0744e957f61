// The number of threads that kernels share.
#ifndef POLYHEAD_RUNTIME_THREADS_H
#define POLYHEAD_RUNTIME_THREADS_H

#include <shared_mutex>

namespace polyhead::runtime {

// Held while a kernel runs: the number of threads changes between calls, never under one.
class ThreadsInUse {
public:
    ThreadsInUse() noexcept;

private:
    std::shared_lock<std::shared_mutex> lock_;
};

// The present number; the first call of the process applies the default.
int num_threads() noexcept;

// CPUs that the cgroup quotas above this process allow, rounded up; 0 = no quota. root is "" outside of tests.
int cgroup_cpu_quota(const char *root) noexcept;

// min(CPU affinity, cgroup quota), or HL_NUM_THREADS when that is a positive number.
int default_num_threads() noexcept;

} // namespace polyhead::runtime
#endif
