// The number of threads that kernels share, and the parallel loops of kernels on our pool. Halide's own pool does not outlive a fork, lets
// no smaller number in while calls run, and leaves floating-point arithmetic as the caller had it.
#include "threads.h"

#include <algorithm>
#include <mutex>

#include <polyhead/c_api.h>

#include "../call/call_context.h"
#include "../call/call_guard.h"
#include "../kernel_interface.h"
#include "../memory/scratch.h"
#include "process.h"
#include "thread_pool.h"

namespace polyhead::runtime {
namespace {

// Guards what follows; held for a few instructions, and across fork.
std::mutex change;
int present = 0;               // 0: the default was not applied yet
ThreadPool *current = nullptr; // null: not needed yet
ThreadPool *pools = nullptr;   // all of them, the retired ones too

// With the lock held: removes the pools without users from the list. Their helpers have ended, so deleting does not wait.
ThreadPool *unused_pools() noexcept {
    ThreadPool *unused = nullptr;
    for (ThreadPool **link = &pools; *link;) {
        ThreadPool *pool = *link;
        if (pool != current && pool->uses == 0 && pool->ended()) {
            *link = pool->next;
            pool->next = unused;
            unused = pool;
        } else {
            link = &pool->next;
        }
    }
    return unused;
}

void remove(ThreadPool *unused) noexcept {
    while (unused) {
        ThreadPool *const pool = unused;
        unused = pool->next;
        ThreadPool::remove(pool);
    }
}

int apply(int threads) noexcept {
    ThreadPool *unused = nullptr;
    {
        const std::lock_guard<std::mutex> lock(change);
        if (threads != present && current) {
            current->retire();
            current = nullptr;
        }
        present = threads;
        unused = unused_pools();
    }
    remove(unused);
    return threads;
}

} // namespace

void Workers::use_pool() noexcept {
    std::unique_lock<std::mutex> lock(change);
    if (present == 0) {
        lock.unlock();
        num_threads();
        lock.lock();
    }
    count_ = present;
    if (count_ > 1 && !current) {
        current = ThreadPool::make(count_);
        if (current) {
            current->next = pools;
            pools = current;
        }
    }
    pool_ = current;
    if (pool_) {
        ++pool_->uses;
    }
}

Workers::~Workers() {
    if (pool_) {
        const std::lock_guard<std::mutex> lock(change);
        --pool_->uses;
    }
}

int Workers::run(ParallelLoop *loop) noexcept {
    if (loop->iterations < 2 || count() < 2 || in_task()) {
        return loop->run_alone();
    }
    if (pool_) {
        return pool_->run(loop);
    }
    return executor_ ? loop->run_on(*executor_, count_, &fault_) : loop->run_alone();
}

int num_threads() noexcept {
    {
        const std::lock_guard<std::mutex> lock(change);
        if (present > 0) {
            return present;
        }
    }
    const int standard = default_num_threads(); // reads files: not under the lock
    const std::lock_guard<std::mutex> lock(change);
    present = present > 0 ? present : standard;
    return present;
}

void lock_threads_for_fork() noexcept {
    change.lock();
}

void unlock_threads_after_fork(bool in_child) noexcept {
    if (in_child) { // their threads are the parent's; what they hold is unknown, so it is not freed
        current = nullptr;
        pools = nullptr;
    }
    change.unlock();
}

} // namespace polyhead::runtime

using namespace polyhead::runtime;

void polyhead_set_num_threads(int32_t threads) {
    const CallGuard guard;
    apply(threads > 0 ? std::min<int>(threads, most_threads) : default_num_threads());
}

int32_t polyhead_num_threads(void) {
    const CallGuard guard;
    return num_threads();
}

extern "C" int halide_do_par_for(void *user_context, KernelTask task, int min, int size, uint8_t *closure) {
    if (size <= 0) {
        return kernel_success;
    }
    if (of_this_call(user_context)) {
        auto *const call = static_cast<CallContext *>(user_context);
        ParallelLoop loop(task, user_context, closure, min, size, call);
        return call->workers->run(&loop);
    }
    ParallelLoop loop(task, user_context, closure, min, size, nullptr);
    return Workers(nullptr).run(&loop); // somebody else's pipeline
}

// When the program or the library that this code is in ends; the Halide runtime of devices calls it then, too. Calls that still run
// continue without helpers.
extern "C" __attribute__((destructor)) void halide_shutdown_thread_pool() {
    ThreadPool *idle = nullptr;
    {
        const std::lock_guard<std::mutex> lock(change);
        current = nullptr;
        for (ThreadPool **link = &pools; *link;) {
            ThreadPool *pool = *link;
            pool->retire();
            if (pool->uses == 0) {
                *link = pool->next;
                pool->next = idle;
                idle = pool;
            } else {
                link = &pool->next;
            }
        }
    }
    remove(idle);
}
