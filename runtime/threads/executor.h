// An executor of the caller runs tasks, each of them once.
#ifndef POLYHEAD_RUNTIME_EXECUTOR_H
#define POLYHEAD_RUNTIME_EXECUTOR_H

#include <cstdint>

#include <polyhead/c_api.h>

namespace polyhead::runtime {

constexpr int most_width = 256;

// What an executor did against its contract; the first fault is kept.
struct ExecutorFault {
    enum Kind { none, twice, left_out, no_such_task, threw } kind = none;
    int32_t task = 0, tasks = 0;

    bool any() const noexcept { return kind != none; }
    void say(polyhead_status *status) const noexcept;
};

// Has the executor run task(closure, i) once for i = 0 .. tasks - 1. When it returns no task runs any more, and none will: one that the
// executor runs later does nothing, and touches no memory of this call.
void run_tasks(const polyhead_executor &executor, int32_t tasks, void (*task)(void *closure, int32_t i), void *closure,
               ExecutorFault *fault) noexcept;

// The executor as this library knows it, in *room where it is of another version. Null and a status when it is refused.
const polyhead_executor *served_executor(const polyhead_executor &given, polyhead_executor *room, polyhead_status *status) noexcept;

} // namespace polyhead::runtime
#endif
