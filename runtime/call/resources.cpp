// What a caller gives to a call: an executor and scratch memory.
#include "resources.h"

#include "../memory/scratch.h"
#include "../rules/served.h"
#include "../status.h"

namespace polyhead::runtime {

bool check_resources(const polyhead_executor **executor, polyhead_executor *room, const void *scratch, size_t scratch_bytes,
                     polyhead_status *status) noexcept {
    if (*executor) {
        *executor = served_executor(**executor, room, status);
        if (!*executor) {
            return false;
        }
    }
    if (!scratch && scratch_bytes != 0) {
        return refuse(status, POLYHEAD_NULL_POINTER, "scratch: null pointer, expected %zu bytes", scratch_bytes);
    }
    return reinterpret_cast<uintptr_t>(scratch) % Scratch::alignment == 0 ||
           refuse(status, POLYHEAD_WRONG_STRIDE, "scratch: address %p, expected a multiple of %zu", scratch, Scratch::alignment);
}

bool GivenWorkspace::read(const polyhead_workspace *given, polyhead_status *status) noexcept {
    if (!given) {
        return true;
    }
    polyhead_workspace room;
    const polyhead_workspace *const workspace =
        served(*given, &room, {"workspace", "polyhead_workspace", "begin it with polyhead_workspace_of() and compile with the headers of"},
               status);
    if (!workspace) {
        return false;
    }
    executor = workspace->executor;
    scratch = workspace->scratch;
    scratch_bytes = workspace->scratch_bytes;
    return check_resources(&executor, &room_, scratch, scratch_bytes, status);
}

polyhead_tensor scratch_tensor(const void *scratch, size_t bytes) noexcept {
    return {const_cast<void *>(scratch), POLYHEAD_BOOL, 1, {static_cast<int64_t>(bytes)}, {1}, nullptr, 0};
}

} // namespace polyhead::runtime
