// Executors of tests: right ones, and ones that break their contract in one way each.
#ifndef POLYHEAD_TESTS_EXECUTORS_H
#define POLYHEAD_TESTS_EXECUTORS_H

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include <polyhead/polyhead.h>

namespace polyhead::test {

// Calls run(task) for the tasks that a test wants.
using RunTasks = std::function<void(int tasks, const std::function<void(int)> &run)>;
using TestExecutor = Executor<RunTasks>;

// All tasks on the thread of the call, the last first.
inline void backwards(int tasks, const std::function<void(int)> &run) {
    for (int i = tasks; i-- > 0;) {
        run(i);
    }
}

// Each on a thread of its own.
inline void on_threads(int tasks, const std::function<void(int)> &run) {
    std::vector<std::thread> threads;
    for (int i = 0; i < tasks; ++i) {
        threads.emplace_back(run, i);
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

// All of them on one thread that is not that of the call.
inline void on_another_thread(int tasks, const std::function<void(int)> &run) {
    std::thread([&] { backwards(tasks, run); }).join();
}

// Threads that look for work all the time: none of them sleeps, so that a loop makes no request to the system. Each thread runs the tasks
// i, i + threads, i + 2 * threads ...; thread 0 is the caller.
class SpinningPool {
public:
    explicit SpinningPool(int threads) : threads_(threads), raw_(polyhead_executor_of(threads, this, parallel_for)) {
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
                std::this_thread::yield();
                continue;
            }
            seen = now;
            loop_.work(thread, threads_);
            done_.fetch_add(1, std::memory_order_release);
        }
    }
    static void parallel_for(void *self, int32_t tasks, void (*run)(void *, int32_t), void *state) {
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
    polyhead_executor raw_;
    Loop loop_{};
    std::atomic<int> ready_{0}, published_{0}, done_{0};
    std::atomic<bool> ended_{false};
    std::vector<std::thread> helpers_;
};

} // namespace polyhead::test
#endif
