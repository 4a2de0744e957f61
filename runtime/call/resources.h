// What one call works with.
#ifndef POLYHEAD_RUNTIME_RESOURCES_H
#define POLYHEAD_RUNTIME_RESOURCES_H

#include "../memory/call_memory.h"
#include "../status.h"
#include "../threads/threads.h"

namespace polyhead::runtime {

struct Resources {
    Workers *workers;
    CallMemory *memory;
};

// Checks what a caller gives for a function on the host: its executor, and the place of its scratch memory. The executor comes back as this
// library knows it, in *room where it is of another version.
bool check_resources(const polyhead_executor **executor, polyhead_executor *room, const void *scratch, size_t scratch_bytes,
                     polyhead_status *status) noexcept;

// A workspace as it was given to a function on the host.
struct GivenWorkspace {
    const polyhead_executor *executor = nullptr;
    void *scratch = nullptr;
    size_t scratch_bytes = 0;

    // given: null for none. False and a status when it is refused.
    bool read(const polyhead_workspace *given, polyhead_status *status) noexcept;

private:
    polyhead_executor room_;
};

// Scratch memory as a tensor of bytes, to be held against others.
polyhead_tensor scratch_tensor(const void *scratch, size_t bytes) noexcept;

// Where scratch memory was too small for a function: how much it takes.
inline void say_expected_scratch(size_t found, int64_t expected, polyhead_status *status) noexcept {
    refuse(status, POLYHEAD_BAD_VALUE, "scratch: %zu bytes, expected %lld", found, static_cast<long long>(expected));
}

// After a function that was ok: what the executor did wrong.
inline void say_fault(const Workers &workers, polyhead_status *status) noexcept {
    if (status->code == POLYHEAD_OK) {
        workers.fault().say(status);
    }
}

} // namespace polyhead::runtime
#endif
