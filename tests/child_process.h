// A forked child that runs a piece of a test.
#ifndef POLYHEAD_TESTS_CHILD_PROCESS_H
#define POLYHEAD_TESTS_CHILD_PROCESS_H

#include <cstdio>
#include <cstdlib>
#include <sys/wait.h>
#include <unistd.h>

namespace polyhead::test {

#if defined(__SANITIZE_THREAD__)
// The sanitizer takes a new thread of a child for one of its parent's, and ends the child.
constexpr bool children_may_make_threads = false, parents_may_be_busy = true;
constexpr bool look_for_leaks = false;
#elif defined(__SANITIZE_ADDRESS__)
// Another thread, even a helper of the pool on its way to sleep, may hold the lock of the sanitizer's allocator when its parent forks. Then
// every thread of the child waits in GetFromAllocator (seen with GCC 12).
constexpr bool children_may_make_threads = false, parents_may_be_busy = false;
constexpr bool look_for_leaks = true;
#else
constexpr bool children_may_make_threads = true, parents_may_be_busy = true;
constexpr bool look_for_leaks = false; // on exit
#endif

enum class End { at_once, as_programs_do }; // _exit, or exit with its destructors

// What body returned in a child, as an exit code; minus the signal that ended it (SIGALRM: it hung).
template <typename Body> int in_child(End end, const Body &body) {
    constexpr unsigned most_seconds = 60;
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        alarm(most_seconds);
        const int code = body();
        end == End::at_once || look_for_leaks ? _exit(code) : std::exit(code);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        return -1000;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

} // namespace polyhead::test
#endif
