// Code compiled in process on the memory and the threads of polyhead's runtime.
#include "in_process_runtime.h"

#include <malloc.h>

#include <mutex>

#include <Halide.h>

namespace bench {

constexpr int kept_bytes = 1 << 30;

void share_runtime() {
    static std::once_flag shared;
    std::call_once(shared, [] {
        using Task = int (*)(Halide::JITUserContext *, int, uint8_t *);
        // Kernels ahead of time have the memory of a task in that of their call. Here malloc() gives it, which must not return it to the
        // system after each task.
        mallopt(M_TRIM_THRESHOLD, kept_bytes);
        mallopt(M_MMAP_THRESHOLD, kept_bytes);
        Halide::JITHandlers handlers;
        handlers.custom_malloc = [](Halide::JITUserContext *, size_t bytes) { return halide_malloc(nullptr, bytes); };
        handlers.custom_free = [](Halide::JITUserContext *, void *block) { halide_free(nullptr, block); };
        handlers.custom_do_par_for = [](Halide::JITUserContext *context, Task task, int first, int count, uint8_t *closure) {
            return halide_do_par_for(context, reinterpret_cast<halide_task_t>(task), first, count, closure);
        };
        Halide::Internal::JITSharedRuntime::set_default_handlers(handlers);
    });
}

} // namespace bench
