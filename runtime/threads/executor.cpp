// Tasks of a call on threads of the caller.
#include "executor.h"

#include <atomic>
#include <sched.h>

#include "../call/call_guard.h"
#include "../rules/served.h"
#include "../status.h"

namespace polyhead::runtime {
namespace {

// The tasks of one parallel_for, on the stack of the thread that called it.
struct Tasks {
    int32_t count;
    void (*task)(void *closure, int32_t i);
    void *closure;
    std::atomic<bool> began[most_width];
    std::atomic<bool> claimed_fault{false};
    ExecutorFault fault; // written by the thread that claimed it

    void blame(ExecutorFault::Kind kind, int32_t i) noexcept {
        if (!claimed_fault.exchange(true)) {
            fault = {kind, i, count};
        }
    }
    void run(int32_t i) noexcept {
        if (i < 0 || i >= count) {
            blame(ExecutorFault::no_such_task, i);
        } else if (began[i].exchange(true, std::memory_order_relaxed)) {
            blame(ExecutorFault::twice, i);
        } else {
            task(closure, i);
        }
    }
};

// What an executor gets as `state` names a gate and its generation, and is no address: a task that runs too late finds another generation
// and looks at nothing else. A gate is open during one parallel_for.
struct alignas(64) Gate {
    std::atomic<bool> taken{false};
    std::atomic<uintptr_t> generation{1};
    std::atomic<int> inside{0};
    std::atomic<Tasks *> tasks{nullptr};

    void close() noexcept {
        generation.fetch_add(1);
        while (inside.load() != 0) { // tasks that run although parallel_for has returned
            sched_yield();
        }
        taken.store(false, std::memory_order_release);
    }
};

constexpr uintptr_t num_gates = 256;
Gate gates[num_gates];

// Null when all are open.
Gate *open_gate(Tasks *tasks) noexcept {
    static std::atomic<uintptr_t> next{0};
    const uintptr_t first = next.fetch_add(1, std::memory_order_relaxed);
    for (uintptr_t i = 0; i < num_gates; ++i) {
        Gate &gate = gates[(first + i) % num_gates];
        if (!gate.taken.exchange(true, std::memory_order_acquire)) {
            gate.tasks.store(tasks);
            return &gate;
        }
    }
    return nullptr;
}

void enter(void *state, int32_t i) {
    const CallGuard guard;
    const auto token = reinterpret_cast<uintptr_t>(state);
    Gate &gate = gates[token % num_gates];
    gate.inside.fetch_add(1);
    if (gate.generation.load() == token / num_gates) {
        gate.tasks.load()->run(i);
    }
    gate.inside.fetch_sub(1);
}

} // namespace

void ExecutorFault::say(polyhead_status *status) const noexcept {
    switch (kind) {
    case none:
        break;
    case twice:
        refuse(status, POLYHEAD_WRONG_EXECUTOR, "executor: ran task %d of %d twice, expected once; the outputs are complete", task, tasks);
        break;
    case left_out:
        refuse(status, POLYHEAD_WRONG_EXECUTOR,
               "executor: parallel_for returned before task %d of %d ran, expected after all; the outputs are complete", task, tasks);
        break;
    case no_such_task:
        refuse(status, POLYHEAD_WRONG_EXECUTOR, "executor: ran task %d, expected 0 to %d; the outputs are complete", task, tasks - 1);
        break;
    case threw:
        refuse(status, POLYHEAD_WRONG_EXECUTOR,
               "executor: parallel_for of %d tasks threw an exception, expected none; the outputs are complete", tasks);
        break;
    }
}

void run_tasks(const polyhead_executor &executor, int32_t count, void (*task)(void *closure, int32_t i), void *closure,
               ExecutorFault *fault) noexcept {
    Tasks tasks{count, task, closure, {}, {}, {}};
    Gate *const gate = open_gate(&tasks);
    if (!gate) { // so many loops at the same time: this thread does the work of all tasks
        task(closure, 0);
        return;
    }
    const uintptr_t token = gate->generation.load() * num_gates + static_cast<uintptr_t>(gate - gates);
    try {
        // NOLINTNEXTLINE(performance-no-int-to-ptr): nothing is read there
        executor.parallel_for(executor.context, count, enter, reinterpret_cast<void *>(token));
    } catch (...) {
        tasks.blame(ExecutorFault::threw, 0);
    }
    gate->close();
    for (int32_t i = 0; i < count; ++i) {
        if (!tasks.began[i].load(std::memory_order_relaxed)) {
            tasks.blame(ExecutorFault::left_out, i);
        }
    }
    if (!fault->any()) {
        *fault = tasks.fault;
    }
}

const polyhead_executor *served_executor(const polyhead_executor &given, polyhead_executor *room, polyhead_status *status) noexcept {
    const polyhead_executor *const executor = served(
        given, room, {"executor", "polyhead_executor", "begin it with polyhead_executor_of() and compile with the headers of"}, status);
    if (!executor) {
        return nullptr;
    }
    if (executor->width < 1 || executor->width > most_width) {
        refuse(status, POLYHEAD_BAD_VALUE, "executor: width %d, expected 1 to %d", executor->width, most_width);
        return nullptr;
    }
    if (executor->width > 1 && !executor->parallel_for) {
        refuse(status, POLYHEAD_NULL_POINTER, "executor: parallel_for is null, expected a function, because width is %d", executor->width);
        return nullptr;
    }
    return executor;
}

} // namespace polyhead::runtime
