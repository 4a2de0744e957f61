// Threads and memory of the caller for calls on the CPU. Included by polyhead.h.
//
//     polyhead::Executor executor(4, [&](int tasks, const auto &task) { pool.parallel_for(0, tasks, task); });
//     args.workspace.executor = executor.raw();
//     const int64_t bytes = kernel.scratch_bytes(args);
//     args.workspace.scratch = aligned_memory(128, bytes);
//     args.workspace.scratch_bytes = bytes;
#ifndef POLYHEAD_WORKSPACE_H
#define POLYHEAD_WORKSPACE_H

#include <cstddef>
#include <cstdint>
#include <utility>

#include <polyhead/c_executor.h>

namespace polyhead {

// Nothing given: threads and memory of this library. See polyhead_workspace.
struct Workspace {
    const polyhead_executor *executor = nullptr;
    void *scratch = nullptr; // at a multiple of 128 bytes
    size_t scratch_bytes = 0;
    polyhead_workspace raw() const noexcept { return polyhead_workspace_of(executor, scratch, scratch_bytes); }
};

// An executor of anything that is called as parallel_for(tasks, task), and then calls task(i) once for each i from 0 to tasks - 1, at most
// `width` at the same time, and returns when all have ended. See polyhead_executor. It must outlive the calls that use it.
template <class ParallelFor> class Executor {
public:
    Executor(int width, ParallelFor parallel_for)
        : parallel_for_(std::move(parallel_for)), raw_(polyhead_executor_of(static_cast<int32_t>(width), &parallel_for_, run_all)) {}
    Executor(const Executor &) = delete;
    Executor &operator=(const Executor &) = delete;
    const polyhead_executor *raw() const noexcept { return &raw_; }

private:
    static void run_all(void *self, int32_t tasks, void (*run)(void *, int32_t), void *state) {
        (*static_cast<ParallelFor *>(self))(static_cast<int>(tasks), [=](int task) { run(state, static_cast<int32_t>(task)); });
    }

    ParallelFor parallel_for_;
    polyhead_executor raw_;
};

} // namespace polyhead
#endif
