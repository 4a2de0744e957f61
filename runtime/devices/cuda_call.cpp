// What kernels on CUDA devices ask Halide's runtime for in the course of a call: the context, and memory between their stages.
#include "cuda_call.h"

#include <cstdio>

#include "halide_devices.h"

namespace polyhead::runtime::cuda {

Device *device_of(void *user_context) noexcept {
    const CallContext *call = CallContext::of(user_context);
    return call && call->device && call->device->api == POLYHEAD_CUDA ? static_cast<Device *>(call->device) : nullptr;
}

int report(void *user_context, const char *what, const char *why) noexcept {
    char text[256];
    std::snprintf(text, sizeof text, "CUDA error: %s, %s", why, what);
    halide_error(user_context, text);
    return halide_error_code_gpu_device_error;
}

int report_captured(void *user_context, const char *what) noexcept {
    char text[256];
    std::snprintf(
        text, sizeof text,
        "the stream is captured into a CUDA graph, and %s at the first call of a kernel in a context: make an equal call before the "
        "capture",
        what);
    halide_error(user_context, text);
    return halide_error_code_gpu_device_error;
}

InContext::InContext(void *user_context) noexcept
    : user_context_(user_context), device_(device_of(user_context)), driver_(device_ ? &device_->driver() : driver(nullptr)) {
    const CallContext *const call = CallContext::of(user_context);
    entered_ = device_ && call->entered;
    if (entered_) {
        context_ = device_->context();
    } else {
        enter();
    }
}

void InContext::enter() noexcept {
    if (!driver_) {
        error_ = report(user_context_, "the driver", "not found");
        return;
    }
    error_ = halide_cuda_acquire_context(user_context_, &context_, true);
    if (error_ == 0 && !context_) {
        error_ = report(user_context_, "acquire", "no context");
    }
    if (error_ == 0) {
        if (const int result = driver_->push(context_)) {
            error_ = report(user_context_, "cuCtxPushCurrent", error_name(*driver_, result));
        } else {
            pushed_ = true;
        }
    }
}

InContext::~InContext() {
    if (entered_) {
        return;
    }
    Context popped = nullptr;
    if (pushed_) {
        driver_->pop(&popped);
    }
    halide_cuda_release_context(user_context_);
}

int InContext::stream(Stream *stream) const noexcept {
    if (!device_) {
        return halide_cuda_get_stream(user_context_, context_, stream);
    }
    *stream = device_->stream();
    return 0;
}

bool InContext::captured() const noexcept {
    if (!device_) {
        return false;
    }
    using Capture = CallContext::Capture;
    Capture &capture = CallContext::of(user_context_)->capture;
    if (capture == Capture::unknown) {
        capture = device_->captured() ? Capture::some : Capture::none;
    }
    return capture == Capture::some;
}

void InContext::failed() const noexcept {
    if (device_) {
        device_->forget_memory();
    }
}

} // namespace polyhead::runtime::cuda

// In place of Halide 21's, which makes the context current again, asks the driver, and takes memory of the host for each block that a
// kernel gives back.
extern "C" int halide_cuda_device_malloc(void *user_context, halide_buffer_t *buffer) {
    using namespace polyhead::runtime::cuda;
    if (buffer->device) {
        return 0;
    }
    const InContext in(user_context);
    if (in.error()) {
        return in.error();
    }
    Pointer memory = 0;
    const size_t bytes = buffer->size_in_bytes();
    const int error = in.device() ? in.device()->take_memory(bytes, in.captured(), &memory) : in.functions().allocate(&memory, bytes);
    if (error != 0) {
        return report(user_context, "memory of a kernel", error_name(in.functions(), error));
    }
    buffer->device = memory;
    buffer->device_interface = halide_cuda_device_interface();
    return 0;
}

extern "C" int halide_cuda_device_free(void *user_context, halide_buffer_t *buffer) {
    using namespace polyhead::runtime::cuda;
    if (!buffer->device) {
        return 0;
    }
    const InContext in(user_context);
    if (in.error()) {
        return in.error();
    }
    in.device() ? in.device()->give_memory_back(buffer->device) : static_cast<void>(in.functions().free(buffer->device));
    buffer->device = 0;
    buffer->device_interface = nullptr;
    return 0;
}
