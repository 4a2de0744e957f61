// The arguments of the functions of a kernel, as they are given.
#ifndef POLYHEAD_RUNTIME_GIVEN_CALL_H
#define POLYHEAD_RUNTIME_GIVEN_CALL_H

#include <polyhead/c_api.h>

#include "kernel_table.h"
#include "resources.h"

namespace polyhead::runtime {

// A call as it was given, in structs as this library knows them.
struct GivenCall {
    const KernelTable *kernel = nullptr; // that of the plan, where there is one
    const polyhead_args *args = nullptr;
    const polyhead_executor *executor = nullptr; // null: the pool

    // False and a status when it cannot be read.
    bool read(const polyhead_kernel *table, const polyhead_args *given, polyhead_status *status) noexcept;
    // On a device nothing but the thread of the call works.
    Workers workers() const noexcept { return args->device ? Workers(Workers::Alone()) : Workers(executor); }

private:
    KernelTable kernel_room_;
    polyhead_args room_;
    polyhead_executor executor_room_;
};

} // namespace polyhead::runtime
#endif
