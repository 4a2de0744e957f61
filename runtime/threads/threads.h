// The number of threads that kernels share, and the pool that has them.
#ifndef POLYHEAD_RUNTIME_THREADS_H
#define POLYHEAD_RUNTIME_THREADS_H

#include <chrono>
#include <cstddef>
#if defined(__linux__)
#include <sched.h>
#endif

namespace polyhead::runtime {

class ThreadPool;

// The pool as one call uses it: a change of the number of threads is for calls that begin later and waits for none.
class ThreadsInUse {
public:
    ThreadsInUse() noexcept;
    ~ThreadsInUse();
    ThreadsInUse(const ThreadsInUse &) = delete;
    ThreadsInUse &operator=(const ThreadsInUse &) = delete;
    int threads() const noexcept { return threads_; }
    ThreadPool *pool() const noexcept { return pool_; } // null: this thread works alone

private:
    int threads_;
    ThreadPool *pool_;
};

// The present number; the first call of the process applies the default.
int num_threads() noexcept;

// CPUs that the cgroup quotas above this process allow, rounded up; 0 = no quota. root is "" outside of tests.
int cgroup_cpu_quota(const char *root) noexcept;

// min(CPU affinity, cgroup quota), or HL_NUM_THREADS when that is a positive number.
int default_num_threads() noexcept;
// CPUs that the process may run on: its main thread, as the calling one may be pinned.
int usable_cpus() noexcept;
#if defined(__linux__)
constexpr size_t cpu_set_bytes = 1024;         // 8192 CPUs
bool cpus_of_process(cpu_set_t *set) noexcept; // of cpu_set_bytes
#endif

// How long a thread that has nothing to do looks for work before it sleeps; crowded: there are more threads than CPUs.
std::chrono::microseconds time_to_look(bool crowded) noexcept;

constexpr int most_threads = 256;

} // namespace polyhead::runtime
#endif
