// The thread pool of another library in the program: its threads look for work for a while before they sleep, as those of OpenMP do.
#ifndef BENCH_FOREIGN_POOL_H
#define BENCH_FOREIGN_POOL_H

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace bench {

// Task i runs on thread i % threads; thread 0 is the caller. The threads of this one never sleep.
class ForeignPool {
public:
    explicit ForeignPool(int threads) : threads_(threads) {
        for (int i = 1; i < threads; i++)
            helpers_.emplace_back([this, i] { help(i); });
    }
    ~ForeignPool() {
        ended_ = true;
        for (std::thread &helper : helpers_)
            helper.join();
    }
    ForeignPool(const ForeignPool &) = delete;
    ForeignPool &operator=(const ForeignPool &) = delete;

    template <class Task> void parallel_for(int tasks, const Task &task) {
        tasks_ = tasks;
        context_ = const_cast<void *>(static_cast<const void *>(&task));
        run_ = [](void *context, int i) { (*static_cast<const Task *>(context))(i); };
        done_.store(0, std::memory_order_relaxed);
        published_.fetch_add(1, std::memory_order_release);
        work(0);
        while (done_.load(std::memory_order_acquire) + 1 < threads_)
            std::this_thread::yield();
    }

private:
    void work(int thread) {
        for (int i = thread; i < tasks_; i += threads_)
            run_(context_, i);
    }
    void help(int thread) {
        for (unsigned seen = 0; !ended_;) {
            const unsigned now = published_.load(std::memory_order_acquire);
            if (now == seen)
                continue; // without a pause: it takes its core
            seen = now;
            work(thread);
            done_.fetch_add(1, std::memory_order_release);
        }
    }

    const int threads_;
    int tasks_ = 0;
    void *context_ = nullptr;
    void (*run_)(void *, int) = nullptr;
    std::atomic<unsigned> published_{0};
    std::atomic<int> done_{0};
    std::atomic<bool> ended_{false};
    std::vector<std::thread> helpers_;
};

} // namespace bench
#endif
