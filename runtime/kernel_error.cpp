// Turns an error inside a kernel into a status. Halide reports in two parts: a text to halide_error, on whichever thread met the
// error, and later a code as result of the call. halide_error is replaced (Halide's own, a weak symbol, prints and aborts).
#include "kernel_error.h"

#include <HalideRuntime.h>
#include <cstdio>
#include <cstring>
#include <initializer_list>
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

bool contains_any(const char *text, std::initializer_list<const char *> words) noexcept {
    for (const char *word : words) {
        if (std::strstr(text, word)) {
            return true;
        }
    }
    return false;
}

// Halide has one code for whatever a driver refuses; the name of the driver's error is in the text.
polyhead_code kind_of(const char *text) noexcept {
    if (contains_any(text, {"OUT_OF_MEMORY", "OUT_OF_HOST_MEMORY", "OUT_OF_DEVICE_MEMORY", "MEM_OBJECT_ALLOCATION_FAILURE",
                            "CL_INVALID_BUFFER_SIZE"})) {
        return POLYHEAD_OUT_OF_MEMORY;
    }
    // The driver does not know the device, or is older than the code.
    return contains_any(text, {"NO_BINARY_FOR_GPU", "INVALID_PTX", "UNSUPPORTED_PTX_VERSION"}) ? POLYHEAD_NO_DEVICE : POLYHEAD_INTERNAL;
}

void first_line(char *to, size_t bytes, const char *text) noexcept {
    std::snprintf(to, bytes, "%s", text);
    to[std::strcspn(to, "\n")] = 0;
}

} // namespace

void device_failure(const char *kernel_name, int code, const CallContext &context, polyhead_status *status) noexcept {
    if (!context.reported.load(std::memory_order_acquire)) {
        return kernel_failure(kernel_name, code, status); // compiled in process, or without a text
    }
    refuse(status, kind_of(context.text), "kernel %s on %s: %.180s", kernel_name, context.device->name, context.text);
}

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

extern "C" void halide_error(void *user_context, const char *text) {
    using namespace polyhead::runtime;
    if (CallContext *context = CallContext::of(user_context)) {
        if (!context->claimed.exchange(true)) {
            first_line(context->text, sizeof context->text, text);
            context->reported.store(true, std::memory_order_release);
        }
        return;
    }
    const std::lock_guard<std::mutex> lock(reported_mutex);
    if (reported[0] != 0) {
        return; // the first is the cause, later ones are its consequences
    }
    first_line(reported, sizeof reported, text);
}
