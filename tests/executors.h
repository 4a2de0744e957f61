// Executors of tests: right ones, and ones that break their contract in one way each.
#ifndef POLYHEAD_TESTS_EXECUTORS_H
#define POLYHEAD_TESTS_EXECUTORS_H

#include <functional>
#include <thread>
#include <vector>

#include <polyhead/polyhead.h>

namespace polyhead::test {

// Calls run(task) for the tasks that a test wants.
using RunTasks = std::function<void(int tasks, const std::function<void(int)> &run)>;
using TestExecutor = Executor<RunTasks>;

// All tasks on the thread of the call, the last first.
inline void backwards(int tasks, const std::function<void(int)> &run) {
    for (int i = tasks; i-- > 0;) {
        run(i);
    }
}

// Each on a thread of its own.
inline void on_threads(int tasks, const std::function<void(int)> &run) {
    std::vector<std::thread> threads;
    for (int i = 0; i < tasks; ++i) {
        threads.emplace_back(run, i);
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

// All of them on one thread that is not that of the call.
inline void on_another_thread(int tasks, const std::function<void(int)> &run) {
    std::thread([&] { backwards(tasks, run); }).join();
}

} // namespace polyhead::test
#endif
