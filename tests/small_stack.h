// Runs a function on a thread with a stack of known size, below which nothing is mapped.
#ifndef POLYHEAD_TESTS_SMALL_STACK_H
#define POLYHEAD_TESTS_SMALL_STACK_H

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <pthread.h>

#include "instruments/calls/guard.h"

namespace polyhead::test {

// What the headers promise: a call, and each task of its kernel, takes no more. (Sanitizers make frames several times larger.)
constexpr size_t promised_stack_bytes = 128 << 10;

inline void run_on_whole_stack(const GuardedBuffer &stack, const std::function<void()> &function) {
    pthread_attr_t attributes;
    pthread_t thread;
    const auto run = [](void *f) -> void * { return (*static_cast<const std::function<void()> *>(f))(), nullptr; };
    if (pthread_attr_init(&attributes) != 0 || pthread_attr_setstack(&attributes, stack.data(), stack.bytes()) != 0 ||
        pthread_create(&thread, &attributes, run, const_cast<std::function<void()> *>(&function)) != 0) {
        std::abort(); // a test without a thread has nothing to say
    }
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
}

// What the C library, and a sanitizer with its thread-local data, have of the stack of a thread before its function runs.
inline size_t stack_bytes_of_thread() {
    constexpr size_t more_than_sanitizers_have = 4 << 20;
    const GuardedBuffer stack(more_than_sanitizers_have, Place::at_begin);
    const auto end = reinterpret_cast<uintptr_t>(stack.data()) + stack.bytes();
    size_t taken = 0;
    run_on_whole_stack(stack, [&] { taken = end - reinterpret_cast<uintptr_t>(__builtin_frame_address(0)); });
    return (taken + 4095) / 4096 * 4096;
}

// bytes: for the function. A stack that is too small ends the program with SIGSEGV.
inline void run_on_stack(size_t bytes, const std::function<void()> &function) {
    run_on_whole_stack(GuardedBuffer(bytes + stack_bytes_of_thread(), Place::at_begin), function);
}

} // namespace polyhead::test
#endif
