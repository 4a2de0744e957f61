// Reads the structs of a call.
#include "given_call.h"

#include "../rules/served.h"
#include "../status.h"
#include "device.h"
#include "planned_call.h"

namespace polyhead::runtime {

bool GivenCall::read(const polyhead_kernel *table, const polyhead_args *given, polyhead_status *status) noexcept {
    if (!table) {
        return refuse(status, POLYHEAD_NULL_POINTER, "kernel: null pointer, expected a kernel");
    }
    if (!given) {
        return refuse(status, POLYHEAD_NULL_POINTER, "args: null pointer, expected arguments");
    }
    args = served(*given, &room_, {"arguments", "polyhead_args", "begin them with polyhead_args_of() and compile with the headers of"},
                  status);
    if (!args) {
        return false;
    }
    if (args->plan) {
        if (!args->plan->check_made_for(table, status)) {
            return false;
        }
        kernel = &args->plan->kernel();
    } else if (kernel_room_.read(table, status)) {
        kernel = &kernel_room_;
    } else {
        return false;
    }
    if (args->device && !args->device->usable()) {
        *status = device_of_parent(args->device->name);
        return false;
    }
    executor = args->executor;
    return check_resources(&executor, &executor_room_, args->scratch, args->scratch_bytes, status);
}

} // namespace polyhead::runtime
