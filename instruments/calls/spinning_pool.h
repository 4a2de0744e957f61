// A thread pool that is not polyhead's, whose threads look for work all the time.
#ifndef POLYHEAD_INSTRUMENTS_SPINNING_POOL_H
#define POLYHEAD_INSTRUMENTS_SPINNING_POOL_H

#include <atomic>
#include <thread>
#include <vector>

#include <polyhead/polyhead.h>

namespace polyhead::test {

// What a thread does that has no work: it gives its core to others that want it, or keeps it, as those of OpenMP do for a while.
enum class Idle { yields, keeps_core };

// The thread pool of a program, as an executor. None of its threads ever sleeps, so that a loop makes no request to the system but
// sched_yield. Each thread runs the tasks i, i + threads, i + 2 * threads ...; thread 0 is the caller.
class SpinningPool {
public:
    explicit SpinningPool(int threads, Idle idle = Idle::yields)
        : threads_(threads), idle_(idle), raw_(polyhead_executor_of(threads, this, run_all)) {
        for (int i = 1; i < threads; ++i) {
            helpers_.emplace_back([this, i] {
                ++ready_;
                help(i);
            });
        }
        while (ready_ + 1 < threads) { // a thread that begins makes requests of its own
            std::this_thread::yield();
        }
    }
    ~SpinningPool() {
        ended_ = true;
        for (std::thread &helper : helpers_) {
            helper.join();
        }
    }
    SpinningPool(const SpinningPool &) = delete;
    SpinningPool &operator=(const SpinningPool &) = delete;
    const polyhead_executor *raw() const { return &raw_; }
    // Work of the program itself: task(i) for each i below `tasks`.
    template <class Task> void parallel_for(int tasks, const Task &task) {
        Task own = task;
        run_all(this, tasks, [](void *state, int32_t i) { (*static_cast<Task *>(state))(i); }, &own);
    }

private:
    struct Loop {
        int32_t tasks;
        void (*run)(void *, int32_t);
        void *state;
        void work(int first, int step) const {
            for (int i = first; i < tasks; i += step) {
                run(state, i);
            }
        }
    };

    void help(int thread) {
        for (int seen = 0; !ended_;) {
            const int now = published_.load(std::memory_order_acquire);
            if (now == seen) {
                if (idle_ == Idle::yields) {
                    std::this_thread::yield();
                }
                continue;
            }
            seen = now;
            loop_.work(thread, threads_);
            done_.fetch_add(1, std::memory_order_release);
        }
    }
    static void run_all(void *self, int32_t tasks, void (*run)(void *, int32_t), void *state) {
        auto &pool = *static_cast<SpinningPool *>(self);
        pool.loop_ = {tasks, run, state};
        pool.done_.store(0);
        pool.published_.fetch_add(1, std::memory_order_release);
        pool.loop_.work(0, pool.threads_);
        while (pool.done_.load(std::memory_order_acquire) + 1 < pool.threads_) {
            std::this_thread::yield();
        }
    }

    const int threads_;
    const Idle idle_;
    polyhead_executor raw_;
    Loop loop_{};
    std::atomic<int> ready_{0}, published_{0}, done_{0};
    std::atomic<bool> ended_{false};
    std::vector<std::thread> helpers_;
};

} // namespace polyhead::test
#endif
