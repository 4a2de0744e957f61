// The number of threads that kernels share, the pool that has them, and who works for a call.
#ifndef POLYHEAD_RUNTIME_THREADS_H
#define POLYHEAD_RUNTIME_THREADS_H

#include <chrono>
#include <cstddef>
#if defined(__linux__)
#include <sched.h>
#endif

#include "executor.h"

namespace polyhead::runtime {

class ThreadPool;
struct ParallelLoop;

// Who works for one call: the thread of the call, worker 0, and beside it threads of the pool, or the caller's executor.
class Workers {
public:
    // The executor; null: the pool, as it is when it is first asked for. A change of the number of threads is for calls that begin later
    // and waits for none.
    explicit Workers(const polyhead_executor *executor) noexcept : count_(executor ? executor->width : 0), executor_(executor) {}
    // The thread of the call alone.
    struct Alone {};
    explicit Workers(Alone) noexcept : count_(1) {}
    ~Workers();
    Workers(const Workers &) = delete;
    Workers &operator=(const Workers &) = delete;

    // How many work at the same time, at most.
    int count() noexcept {
        if (count_ == 0) {
            use_pool();
        }
        return count_;
    }
    bool of_caller() const noexcept { return executor_ != nullptr; }
    // Every iteration, unless one fails: the first error, or 0.
    int run(ParallelLoop *loop) noexcept;
    // What the executor did wrong so far.
    const ExecutorFault &fault() const noexcept { return fault_; }

private:
    void use_pool() noexcept;

    int count_; // 0: the pool was not asked for yet
    ThreadPool *pool_ = nullptr;
    const polyhead_executor *const executor_ = nullptr;
    ExecutorFault fault_;
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
