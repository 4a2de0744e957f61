// An open CUDA device: a context and a stream of it.
#ifndef POLYHEAD_RUNTIME_GPU_CUDA_DEVICE_H
#define POLYHEAD_RUNTIME_GPU_CUDA_DEVICE_H

#include <mutex>
#include <vector>

#include "cuda_driver.h"
#include "halide_device.h"
#include "kept_blocks.h"
#include "known_memory.h"

namespace polyhead::runtime::cuda {

class Constants;

class Device final : public HalideDevice {
public:
    // Of a context that the caller owns, or of the primary context, of which this object then keeps one reference.
    Device(const Driver &driver, int ordinal, Context context, Stream stream, bool primary, Constants *constants) noexcept;
    ~Device() override;

    polyhead_status synchronize() noexcept override;
    polyhead_status allocate(size_t bytes, void **data) noexcept override;
    void free(void *data) noexcept override;
    polyhead_status copy_to_device(const void *host, size_t bytes, void *data, size_t byte_offset) noexcept override;
    polyhead_status copy_to_host(const void *data, size_t byte_offset, size_t bytes, void *host) noexcept override;
    bool enter(polyhead_status *status) noexcept override;
    void leave() noexcept override;
    bool may_wait(polyhead_status *status) noexcept override;
    void *neutral_row(uint8_t byte, size_t bytes) noexcept override;
    bool check(const DeviceRange &range, polyhead_status *status) const noexcept override;
    bool attach(const DeviceRange &range, KernelBuffer *buffer, Attachment *attachment, polyhead_status *status) noexcept override;
    bool attach_element(uint32_t bits, KernelBuffer *buffer, Attachment *attachment) noexcept override;
    void detach(KernelBuffer *buffer, Attachment *attachment, bool ran) noexcept override;

    const Driver &driver() const noexcept { return driver_; }
    Context context() const noexcept { return context_; }
    Stream stream() const noexcept { return stream_; }

    // Of the call that this device has entered. Memory that is there before the work which was started on the stream ends, and a
    // CUresult; in a call that is captured it is a part of the graph, whoever uses this device when the graph runs.
    int take_memory(size_t bytes, bool captured, Pointer *memory) noexcept;
    void give_memory_back(Pointer memory) noexcept;
    // While the context is current: memory that is written before this returns. 0 where that cannot be done now.
    Pointer new_constant(const void *content, size_t bytes) noexcept;
    Pointer new_constant(uint8_t byte, size_t bytes) noexcept;
    // Whether what is given to the stream becomes a graph instead of being done. Nothing may be waited for then.
    bool captured() const noexcept;
    // The driver has refused something: what it has said of memory may be wrong.
    void forget_memory() const noexcept { known_.forget_all(); }

private:
    // What the legacy default stream is called: it is never captured.
    bool has_default_stream() const noexcept { return !stream_ || stream_ == as_pointer(1); }
    polyhead_status result(int error, const char *what) const noexcept;
    void free_unused() noexcept;
    void free_late() noexcept;
    template <typename Write> Pointer written(size_t bytes, const Write &write) noexcept;

    const Driver &driver_;
    const int ordinal_;
    const Context context_;
    const Stream stream_;
    const bool primary_;
    Constants *const constants_;
    mutable KnownMemory known_;
    KeptBlocks blocks_;
    std::mutex late_mutex_;
    std::vector<Pointer> late_; // to be freed when the stream is no longer captured
};

} // namespace polyhead::runtime::cuda
#endif
