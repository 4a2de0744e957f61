// Threads that help calls with the parallel loops of kernels: how they are started, woken and ended.
#include "thread_pool.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <sched.h>

#include "../call/call_context.h"
#include "../memory/memory.h"
#include "../memory/scratch.h"
#include "executor.h"
#include "floating_point.h"
#include "helper_thread.h"
#include "threads.h"

namespace polyhead::runtime {
namespace {

// The owner of a loop looks for the end of its helpers for this long before it sleeps: it is near.
constexpr std::chrono::microseconds awake{1000}, awake_of_many{20};
// Neighbouring iterations often read the same rows, such as the keys of a head, so a thread that helps another takes several of them at
// once.
constexpr int64_t most_taken = 16;
constexpr int most_loops_until_retry = 1024;

template <typename Ready> bool within(std::chrono::microseconds time, const Ready &ready) noexcept {
    using Clock = std::chrono::steady_clock;
    for (const auto end = Clock::now() + time; !ready(); sched_yield()) {
        if (Clock::now() >= end) {
            return false;
        }
    }
    return true;
}

uint64_t packed(int64_t first, int64_t end) noexcept {
    return static_cast<uint64_t>(first) << 32 | static_cast<uint64_t>(end);
}

int64_t first_of(uint64_t left) noexcept {
    return static_cast<int64_t>(left >> 32);
}

int64_t end_of(uint64_t left) noexcept {
    return static_cast<int64_t>(left & 0xffffffff);
}

} // namespace

void ParallelLoop::share_among(int workers) noexcept {
    shares_ = std::clamp(std::min(workers, most_shares), 1, std::max(iterations, 1));
    for (int i = 0; i < shares_; ++i) {
        share_[i].left.store(packed(int64_t(iterations) * i / shares_, int64_t(iterations) * (i + 1) / shares_), std::memory_order_relaxed);
    }
}

// The first iteration of its own share, or else the last ones of another.
ParallelLoop::Taken ParallelLoop::take(int own) noexcept {
    for (int i = 0; i < shares_; ++i) {
        Share &share = share_[(own + i) % shares_];
        uint64_t left = share.left.load(std::memory_order_relaxed);
        while (first_of(left) < end_of(left)) {
            const int64_t first = first_of(left), end = end_of(left);
            const int64_t count = i == 0 ? 1 : std::clamp<int64_t>((end - first) / 2, 1, most_taken);
            const uint64_t after = i == 0 ? packed(first + count, end) : packed(first, end - count);
            if (share.left.compare_exchange_weak(left, after, std::memory_order_relaxed)) {
                return {i == 0 ? first : end - count, count};
            }
        }
    }
    all_taken_.store(true, std::memory_order_relaxed);
    return {};
}

void ParallelLoop::work(int worker) noexcept {
    const DefinedArithmetic arithmetic;
    for (Taken taken = take(worker % shares_); taken.count > 0; taken = take(worker % shares_)) {
        for (int64_t i = 0; i < taken.count; ++i) {
            if (error.load(std::memory_order_relaxed) != 0) {
                return;
            }
            if (const int result = task(user_context, static_cast<int>(first + taken.first + i), closure)) {
                int none = 0;
                error.compare_exchange_strong(none, result);
                return;
            }
        }
    }
}

void ParallelLoop::work_as_helper(int worker) noexcept {
    if (!call) {
        return work(worker);
    }
    const ScratchInUse scratch(call, call->scratch_of(worker), call->helper_bytes);
    work(worker);
}

int ParallelLoop::run_alone() noexcept {
    share_among(1);
    work(0);
    return error.load(std::memory_order_relaxed);
}

// One task for each worker, and task 0 is this thread's, whatever thread runs it: it works in the same scratch memory. What tasks left out
// is done here.
int ParallelLoop::run_on(const polyhead_executor &executor, int width, ExecutorFault *fault) noexcept {
    struct Owner {
        ParallelLoop *loop;
        Scratch *scratch;
    } owner{this, present_scratch()};
    const int tasks = std::min(width, iterations);
    share_among(tasks);
    run_tasks(
        executor, tasks,
        [](void *closure, int32_t i) {
            const Owner &of = *static_cast<Owner *>(closure);
            const InTask in_task;
            if (i > 0) {
                return of.loop->work_as_helper(i);
            }
            Scratch *const before = work_in(of.scratch);
            of.loop->work(0);
            work_in(before);
        },
        &owner, fault);
    work(0);
    return error.load(std::memory_order_relaxed);
}

ThreadPool *ThreadPool::make(int threads) noexcept {
    void *block = new_block(sizeof(ThreadPool) + static_cast<size_t>(threads - 1) * sizeof(Helper));
    return block ? new (block) ThreadPool(threads, static_cast<char *>(block) + sizeof(ThreadPool)) : nullptr;
}

ThreadPool::ThreadPool(int threads, void *helpers) noexcept
    : threads_(threads), crowded_(threads > usable_cpus()), helpers_(static_cast<Helper *>(helpers)) {
    for (int i = 0; i < threads - 1; ++i) {
        (new (helpers_ + i) Helper)->pool = this;
    }
}

void ThreadPool::remove(ThreadPool *pool) noexcept {
    pool->~ThreadPool();
    free_block(pool);
}

ThreadPool::~ThreadPool() {
    retire();
    for (int i = 0; i < started_; ++i) {
        pthread_join(helpers_[i].thread, nullptr);
    }
}

// Called with the lock held. A thread that cannot be made is tried again later, and less and less often.
void ThreadPool::start_helpers(int64_t wanted) noexcept {
    const int most = static_cast<int>(std::min<int64_t>(wanted, threads_ - 1));
    if (started_ >= most || retired_) {
        return;
    }
    if (loops_until_retry_ > 0) {
        --loops_until_retry_;
        return;
    }
    while (started_ < most) {
        if (!start_helper_thread(&helpers_[started_].thread, main, &helpers_[started_])) {
            failures_ = std::min(failures_ + 1, 10);
            loops_until_retry_ = std::min(1 << failures_, most_loops_until_retry);
            return;
        }
        failures_ = 0;
        ++started_;
        ++alive_;
    }
}

void *ThreadPool::main(void *helper) noexcept {
    take_priority_of_process();
    auto *self = static_cast<Helper *>(helper);
    self->pool->help(self);
    return nullptr;
}

ParallelLoop *ThreadPool::find() const noexcept {
    for (ParallelLoop *loop = loops_; loop; loop = loop->after) {
        if (loop->has_more()) {
            return loop;
        }
    }
    return nullptr;
}

// Called with the lock held; afterwards the loop may no longer exist.
void ThreadPool::leave(ParallelLoop *loop) noexcept {
    const bool wake = loop->owner_sleeps;
    if (loop->helpers.fetch_sub(1, std::memory_order_acq_rel) == 1 && wake) {
        loop_done_.notify_all();
    }
}

void ThreadPool::help(Helper *helper) noexcept {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        if (ParallelLoop *loop = find()) {
            loop->helpers.fetch_add(1, std::memory_order_relaxed);
            lock.unlock();
            loop->work_as_helper(1 + static_cast<int>(helper - helpers_));
            lock.lock();
            leave(loop);
            continue;
        }
        if (retired_) {
            break;
        }
        const uint32_t seen = published_.load(std::memory_order_relaxed);
        lock.unlock();
        within(time_to_look(crowded_), [&] { return published_.load(std::memory_order_relaxed) != seen; });
        lock.lock();
        if (published_.load(std::memory_order_relaxed) == seen && !retired_) {
            ++sleeping_;
            work_came_.wait(lock);
            --sleeping_;
        }
    }
    --alive_;
}

void ThreadPool::unlist(ParallelLoop *loop) noexcept {
    ParallelLoop **link = &loops_;
    while (*link != loop) {
        link = &(*link)->after;
    }
    *link = loop->after;
}

void ThreadPool::wait_for_helpers(ParallelLoop *loop) noexcept {
    const auto alone = [&] { return loop->helpers.load(std::memory_order_acquire) == 0; };
    if (!within(crowded_ ? awake_of_many : awake, alone)) {
        std::unique_lock<std::mutex> lock(mutex_);
        loop->owner_sleeps = true;
        loop_done_.wait(lock, alone);
    }
}

int ThreadPool::run(ParallelLoop *loop) noexcept {
    loop->share_among(threads_);
    const int64_t others = int64_t(loop->iterations) - 1;
    if (others > 0) {
        int wake = 0;
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            start_helpers(others);
            ParallelLoop **link = &loops_;
            while (*link) {
                link = &(*link)->after;
            }
            *link = loop;
            published_.fetch_add(1, std::memory_order_relaxed);
            wake = static_cast<int>(std::min<int64_t>(others, sleeping_));
        }
        for (; wake > 0; --wake) {
            work_came_.notify_one();
        }
    }
    loop->work(0);
    if (others > 0) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            unlist(loop);
        }
        wait_for_helpers(loop);
    }
    return loop->error.load(std::memory_order_relaxed);
}

void ThreadPool::retire() noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    retired_ = true;
    published_.fetch_add(1, std::memory_order_relaxed);
    work_came_.notify_all();
}

bool ThreadPool::ended() noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    return retired_ && alive_ == 0;
}

} // namespace polyhead::runtime
