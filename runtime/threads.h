// The number of threads that kernels share, and the pool that has them.
#ifndef POLYHEAD_RUNTIME_THREADS_H
#define POLYHEAD_RUNTIME_THREADS_H

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
// CPUs that this thread may run on.
int usable_cpus() noexcept;

constexpr int most_threads = 256;

} // namespace polyhead::runtime
#endif
