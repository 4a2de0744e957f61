// A fork waits while a kernel is being made: its child would find a compiler that is locked for ever, and wait for a kernel that nobody
// makes any more.
#pragma once

#include <new>
#include <pthread.h>
#include <shared_mutex>

namespace polyhead::python {

// Held by whoever makes a kernel or waits for one. Several may.
class NoFork {
public:
    NoFork() : lock_(mutex()) {}

private:
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

} // namespace polyhead::python
