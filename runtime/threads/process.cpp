// Keeps the runtime whole across fork.
#include "process.h"

#include <atomic>

#include "../../contract/cpu_features.h"
#include "../contract.h"

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace polyhead::runtime {
namespace {

std::atomic<int> generation{0};

#if defined(__unix__) || defined(__APPLE__)
void before_fork() {
    cpu_feature_limit(); // made now, unless it is: a child could not wait for a thread that makes it
    lock_threads_for_fork();
    lock_memory_for_fork();
}

void in_parent() {
    unlock_memory_after_fork();
    unlock_threads_after_fork(false);
}

void in_child() {
    generation.fetch_add(1, std::memory_order_relaxed);
    unlock_memory_after_fork();
    unlock_threads_after_fork(true);
}

// Before main, because a fork may come before the first call: registration on demand would need a lock of its own.
const int registered = pthread_atfork(before_fork, in_parent, in_child);
#endif

} // namespace

int fork_generation() noexcept {
    return generation.load(std::memory_order_relaxed);
}

} // namespace polyhead::runtime
