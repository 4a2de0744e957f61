// A fork waits until those who compile wait for the compiler's process: then its child finds no lock held and nothing half done.
#pragma once

#include <new>
#include <pthread.h>
#include <shared_mutex>

namespace polyhead::python {

// Held by whoever makes, looks up or unloads kernels, without Python's lock: the thread that forks has that one. Several may hold it.
class NoFork {
public:
    NoFork() : lock_(mutex()) {}

private:
    friend class ForkMeanwhile;
    static std::shared_mutex &mutex() {
        static std::shared_mutex *const made = [] {
            auto *one = new std::shared_mutex; // never destroyed: kernels may be wanted while the process ends
            // In a child it is made anew: glibc tells a writer by the number of its thread, which a fork changes.
            pthread_atfork([] { mutex().lock(); }, [] { mutex().unlock(); }, [] { new (&mutex()) std::shared_mutex; });
            return one;
        }();
        return *made;
    }
    std::shared_lock<std::shared_mutex> lock_;
};

// A thread that holds one NoFork lets forks happen while this lives.
class ForkMeanwhile {
public:
    ForkMeanwhile() { NoFork::mutex().unlock_shared(); }
    ~ForkMeanwhile() { NoFork::mutex().lock_shared(); }
    ForkMeanwhile(const ForkMeanwhile &) = delete;
    ForkMeanwhile &operator=(const ForkMeanwhile &) = delete;
};

} // namespace polyhead::python
