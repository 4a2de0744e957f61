// Makes a status from an error inside a kernel. A kernel reports an error in two parts: first a text to halide_error, on the thread with
// the error, which the context of the call keeps; later a code as the result of the call. The Halide runtime of devices reports by this
// function, too: its own, a weak symbol, prints and aborts.
#include "kernel_error.h"

#include <cstring>
#include <initializer_list>

#include "../helpers/assertions.h"
#include "../kernel_interface.h"
#include "../status.h"
#include "device.h"

namespace polyhead::runtime {
namespace {

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
    if (contains_any(text, {"CUDA graph", "STREAM_CAPTURE"})) {
        return POLYHEAD_UNSUPPORTED;
    }
    // The driver does not support the device, or is older than the code.
    return contains_any(text, {"NO_BINARY_FOR_GPU", "INVALID_PTX", "UNSUPPORTED_PTX_VERSION"}) ? POLYHEAD_NO_DEVICE : POLYHEAD_INTERNAL;
}

} // namespace

void kernel_failure(const char *kernel_name, int code, const CallContext &context, polyhead_status *status) noexcept {
    polyhead_code kind = code_of_result(code);
    const char *const on = context.device ? " on " : "", *const device = context.device ? context.device->name : "";
    if (!context.reported.load(std::memory_order_acquire)) {
        refuse(status, kind, "kernel %s%s%s: error %d without a text", kernel_name, on, device, code);
        return;
    }
    if (context.device && kind == POLYHEAD_INTERNAL) {
        kind = kind_of(context.text);
    }
    refuse(status, kind, "kernel %s%s%s: %.180s", kernel_name, on, device, context.text);
}

} // namespace polyhead::runtime

extern "C" void halide_error(void *user_context, const char *text) {
    using namespace polyhead::runtime;
    if (CallContext *context = CallContext::of(user_context)) {
        context->report(text); // without one of our contexts the caller has the code alone
    }
}
