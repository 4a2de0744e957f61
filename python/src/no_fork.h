// A fork waits until those who compile wait for the compiler's process: then its child finds no lock held and nothing half done.
#pragma once

#include <new>
#include <pthread.h>
#include <shared_mutex>

namespace polyhead::python {

// Held by threads that make, find or unload kernels, while they do not hold Python's lock (a thread that forks does). Many may hold it.
class NoFork {
public:
    NoFork() : lock_(mutex()) {}

private:
    friend class ForkMeanwhile;
    static std::shared_mutex &mutex() {
        static std::shared_mutex *const made = [] {
            auto *one = new std::shared_mutex; // never destroyed: kernels may be wanted while the process ends
            // A child makes a new one: glibc identifies a writer by the number of its thread, which a fork changes.
            pthread_atfork([] { mutex().lock(); }, [] { mutex().unlock(); }, [] { new (&mutex()) std::shared_mutex; });
            return one;
        }();
        return *made;
    }
    std::shared_lock<std::shared_mutex> lock_;
};

// A thread that holds one NoFork allows forks while this object exists.
class ForkMeanwhile {
public:
    ForkMeanwhile() { NoFork::mutex().unlock_shared(); }
    ~ForkMeanwhile() { NoFork::mutex().lock_shared(); }
    ForkMeanwhile(const ForkMeanwhile &) = delete;
    ForkMeanwhile &operator=(const ForkMeanwhile &) = delete;
};

} // namespace polyhead::python
