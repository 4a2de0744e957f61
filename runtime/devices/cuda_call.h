// The CUDA context and the device of a call, for functions that kernels call.
#ifndef POLYHEAD_RUNTIME_GPU_CUDA_CALL_H
#define POLYHEAD_RUNTIME_GPU_CUDA_CALL_H

#include "cuda_device.h"

namespace polyhead::runtime::cuda {

// The device of a call of this library; null: other code that uses Halide.
Device *device_of(void *user_context) noexcept;

// Reports an error as Halide has it, a text and a code. Returns the code.
int report(void *user_context, const char *what, const char *why) noexcept;
// The same of what a captured call would have to do.
int report_captured(void *user_context, const char *what) noexcept;

// The context of a call is current while this object exists. A call has made it current before its kernel begins: then nothing is left to
// do.
class InContext {
public:
    explicit InContext(void *user_context) noexcept;
    ~InContext();
    InContext(const InContext &) = delete;
    InContext &operator=(const InContext &) = delete;
    int error() const noexcept { return error_; }
    const Driver &functions() const noexcept { return *driver_; }
    Context context() const noexcept { return context_; }
    Device *device() const noexcept { return device_; }
    int stream(Stream *stream) const noexcept;
    // Whether the call becomes a part of a graph: the driver is asked once for a call.
    bool captured() const noexcept;
    void failed() const noexcept;

private:
    void enter() noexcept;

    void *const user_context_;
    Device *const device_;
    const Driver *driver_;
    Context context_ = nullptr;
    int error_ = 0;
    bool entered_ = false, pushed_ = false;
};

} // namespace polyhead::runtime::cuda
#endif
