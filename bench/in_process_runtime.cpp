// Code compiled in process on the memory and the threads of polyhead's runtime.
#include "in_process_runtime.h"

#include <mutex>

#include <Halide.h>

namespace bench {

void share_runtime() {
    static std::once_flag shared;
    std::call_once(shared, [] {
        using Task = int (*)(Halide::JITUserContext *, int, uint8_t *);
        Halide::JITHandlers handlers;
        handlers.custom_malloc = [](Halide::JITUserContext *context, size_t bytes) { return halide_malloc(context, bytes); };
        handlers.custom_free = [](Halide::JITUserContext *, void *block) { halide_free(nullptr, block); };
        handlers.custom_do_par_for = [](Halide::JITUserContext *context, Task task, int first, int count, uint8_t *closure) {
            return halide_do_par_for(context, reinterpret_cast<halide_task_t>(task), first, count, closure);
        };
        Halide::Internal::JITSharedRuntime::set_default_handlers(handlers);
    });
}

} // namespace bench
