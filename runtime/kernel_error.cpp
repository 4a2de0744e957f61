// Turns an error inside a kernel into a status. Halide reports in two parts: a text to halide_error, on whichever thread met the
// error, and later a code as result of the call. halide_error is replaced (Halide's own, a weak symbol, prints and aborts).
#include "kernel_error.h"

#include <HalideRuntime.h>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "status.h"

namespace polyhead::runtime {
namespace {

std::mutex reported_mutex;
char reported[sizeof(polyhead_status::message)]; // empty: nothing since the last result

void take_reported(char *text, size_t bytes) noexcept {
    const std::lock_guard<std::mutex> lock(reported_mutex);
    std::snprintf(text, bytes, "%s", reported);
    reported[0] = 0;
}

} // namespace

void kernel_failure(const char *kernel_name, int code, polyhead_status *status) noexcept {
    char text[sizeof reported];
    take_reported(text, sizeof text);
    if (text[0] == 0) {
        std::snprintf(text, sizeof text, "error %d without a text", code);
    }
    polyhead_code kind = POLYHEAD_INTERNAL;
    if (code == halide_error_code_out_of_memory) {
        kind = POLYHEAD_OUT_OF_MEMORY;
    }
    // A tensor between two stages outgrew 2^31 - 1 bytes: too long for the kernel, not an error in it.
    if (code == halide_error_code_buffer_allocation_too_large || code == halide_error_code_buffer_extents_too_large) {
        kind = POLYHEAD_UNSUPPORTED;
    }
    refuse(status, kind, "kernel %s: %s", kernel_name, text);
}

} // namespace polyhead::runtime

extern "C" void halide_error(void *, const char *text) {
    using namespace polyhead::runtime;
    const std::lock_guard<std::mutex> lock(reported_mutex);
    if (reported[0] != 0) {
        return; // the first is the cause, later ones are its consequences
    }
    std::snprintf(reported, sizeof reported, "%s", text);
    reported[std::strcspn(reported, "\n")] = 0;
}
