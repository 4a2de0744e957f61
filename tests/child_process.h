// A forked child that runs a piece of a test.
#ifndef POLYHEAD_TESTS_CHILD_PROCESS_H
#define POLYHEAD_TESTS_CHILD_PROCESS_H

#include <cstdio>
#include <cstdlib>
#include <sys/wait.h>
#include <unistd.h>

namespace polyhead::test {

enum class End { at_once, as_programs_do }; // _exit, or exit with its destructors

// What body returned in a child, as an exit code; minus the signal that ended it (SIGALRM: it hung).
template <typename Body> int in_child(End end, const Body &body) {
    constexpr unsigned most_seconds = 60;
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        alarm(most_seconds);
        const int code = body();
        end == End::at_once ? _exit(code) : std::exit(code);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        return -1000;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

} // namespace polyhead::test
#endif
