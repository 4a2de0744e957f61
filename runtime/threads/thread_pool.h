// Threads that help calls with the parallel loops of kernels.
#ifndef POLYHEAD_RUNTIME_THREAD_POOL_H
#define POLYHEAD_RUNTIME_THREAD_POOL_H

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <pthread.h>

#include <polyhead/c_api.h>

namespace polyhead::runtime {

struct CallContext;
struct ExecutorFault;

// A parallel loop while it runs; it is on the stack of its owner, the thread that runs the loop.
struct ParallelLoop {
    using Task = int (*)(void *user_context, int index, uint8_t *closure);

    ParallelLoop(Task task_, void *user_context_, uint8_t *closure_, int32_t first_, int32_t iterations_, const CallContext *call_) noexcept
        : task(task_), user_context(user_context_), closure(closure_), first(first_), iterations(iterations_), call(call_) {}

    const Task task;
    void *const user_context;
    uint8_t *const closure;
    const int32_t first, iterations;
    const CallContext *const call; // whose workers have scratch memory; null: not one of our calls
    std::atomic<int> error{0};
    // The pool's.
    std::atomic<int> helpers{0};
    bool owner_sleeps = false;
    ParallelLoop *after = nullptr;

    // Before any thread works for the loop. Worker 0 is the owner, the helpers follow.
    void share_among(int workers) noexcept;
    bool has_more() const noexcept { return !all_taken_.load(std::memory_order_relaxed) && error.load(std::memory_order_relaxed) == 0; }
    // Runs iterations until none is left or one fails; a helper works in the scratch memory that the call has for it.
    void work(int worker) noexcept;
    void work_as_helper(int worker) noexcept;
    // Runs all of them here, or by an executor. Returns the first error of a task, or 0.
    int run_alone() noexcept;
    int run_on(const polyhead_executor &executor, int width, ExecutorFault *fault) noexcept;

private:
    // Iterations that lie side by side: each thread begins with its own ones, which are the same in every call, so that it finds the rows
    // of the call before in its own caches. Then it helps the others.
    struct alignas(64) Share {
        std::atomic<uint64_t> left; // the first one and the one after the last, 32 bits each
    };
    static constexpr int most_shares = 64; // more threads use the same ones

    struct Taken {
        int64_t first = 0, count = 0; // none when none is left
    };
    Taken take(int own) noexcept;

    int shares_ = 0;
    std::atomic<bool> all_taken_{false};
    Share share_[most_shares];
};

// Up to threads - 1 helpers beside each caller. A thread that waits for its own loop does what is left of it and nothing else, so
// loops inside of loops always come to an end. Helpers start when a loop first needs them; fewer than wished are right as well.
class ThreadPool {
public:
    static ThreadPool *make(int threads) noexcept; // null without memory
    ThreadPool(const ThreadPool &) = delete;
    ThreadPool &operator=(const ThreadPool &) = delete;
    // No thread may run a loop any more. Waits for the helpers to end.
    static void remove(ThreadPool *pool) noexcept;

    int threads() const noexcept { return threads_; }
    // Returns the first error of a task, or 0.
    int run(ParallelLoop *loop) noexcept;
    // Helpers end as soon as they find nothing to do; loops that come later are run by their owners alone.
    void retire() noexcept;
    // True when all helpers of a retired pool have ended, so that remove() does not wait.
    bool ended() noexcept;

    int uses = 0;               // calls that may still bring loops; guarded by the list of pools
    ThreadPool *next = nullptr; // in the list of pools

private:
    struct Helper {
        ThreadPool *pool = nullptr;
        pthread_t thread{};
    };

    ThreadPool(int threads, void *helpers) noexcept;
    ~ThreadPool();
    static void *main(void *helper) noexcept;
    void help(Helper *helper) noexcept;
    void start_helpers(int64_t wanted) noexcept;
    ParallelLoop *find() const noexcept;
    void leave(ParallelLoop *loop) noexcept;
    void unlist(ParallelLoop *loop) noexcept;
    void wait_for_helpers(ParallelLoop *loop) noexcept;

    const int threads_;
    const bool crowded_;    // more threads than CPUs
    Helper *const helpers_; // threads_ - 1
    std::mutex mutex_;      // of everything below, and of the links of loops
    std::condition_variable work_came_, loop_done_;
    std::atomic<uint32_t> published_{0};
    ParallelLoop *loops_ = nullptr; // oldest first
    int started_ = 0, alive_ = 0, sleeping_ = 0, loops_until_retry_ = 0, failures_ = 0;
    bool retired_ = false;
};

} // namespace polyhead::runtime
#endif
