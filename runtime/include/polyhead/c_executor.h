/* Threads and memory of the caller, for programs that have a thread pool and an allocator of their own. Included by c_api.h. */
#ifndef POLYHEAD_C_EXECUTOR_H
#define POLYHEAD_C_EXECUTOR_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Threads of the caller. A function that works in parallel divides its work into tasks and has the executor run them. Each task sets its
 * own floating-point state and brings back what it found. Tasks never use the executor themselves.
 *
 * A task that runs a second time, or that parallel_for leaves out, is found: the outputs are complete, and the status is
 * POLYHEAD_WRONG_EXECUTOR. A task that runs after parallel_for has returned does nothing. If parallel_for throws a C++ exception, the
 * remaining work is done by the thread of the call. */
typedef struct polyhead_executor {
    uint32_t size; /* sizeof(polyhead_executor) of the program's header */
    int32_t width; /* 1 to 256: tasks that may run at the same time. With 1 parallel_for is not used: the thread of the call works alone */
    void *context; /* handed to parallel_for */
    /* Calls run(state, task) once for each task from 0 to tasks - 1, at most `width`, on any threads, in any order, one after another or at
     * the same time. Returns after all of them have returned. */
    void (*parallel_for)(void *context, int32_t tasks, void (*run)(void *state, int32_t task), void *state);
} polyhead_executor;

static inline polyhead_executor polyhead_executor_of(int32_t width, void *context,
                                                     void (*parallel_for)(void *context, int32_t tasks,
                                                                          void (*run)(void *state, int32_t task), void *state)) {
    polyhead_executor executor;
    memset(&executor, 0, sizeof executor);
    executor.size = (uint32_t)sizeof executor;
    executor.width = width;
    executor.context = context;
    executor.parallel_for = parallel_for;
    return executor;
}

/* Who runs the tasks of a function, and where it takes memory. With both given, the function allocates nothing, takes no lock, starts no
 * thread and asks the system for nothing. */
typedef struct polyhead_workspace {
    uint32_t size;                     /* sizeof(polyhead_workspace) of the program's header */
    const polyhead_executor *executor; /* null: threads of this library */
    /* Memory at a multiple of 128 bytes, as many as the function's ..._scratch_bytes() says for this executor; not shared with any tensor,
     * nor with a call at the same time. Null: memory of this library. */
    void *scratch;
    size_t scratch_bytes;
} polyhead_workspace;

static inline polyhead_workspace polyhead_workspace_of(const polyhead_executor *executor, void *scratch, size_t scratch_bytes) {
    polyhead_workspace workspace;
    memset(&workspace, 0, sizeof workspace);
    workspace.size = (uint32_t)sizeof workspace;
    workspace.executor = executor;
    workspace.scratch = scratch;
    workspace.scratch_bytes = scratch_bytes;
    return workspace;
}

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
