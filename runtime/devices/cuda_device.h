// An open CUDA device: a context and a stream of it.
#ifndef POLYHEAD_RUNTIME_GPU_CUDA_DEVICE_H
#define POLYHEAD_RUNTIME_GPU_CUDA_DEVICE_H

#include "cuda_driver.h"
#include "element_slots.h"
#include "halide_device.h"

namespace polyhead::runtime::cuda {

class Device final : public HalideDevice {
public:
    // Of a context that the caller owns, or of the primary context, of which this object then keeps one reference.
    Device(const Driver &driver, int ordinal, Context context, Stream stream, bool primary) noexcept;
    ~Device() override;

    polyhead_status synchronize() noexcept override;
    polyhead_status allocate(size_t bytes, void **data) noexcept override;
    void free(void *data) noexcept override;
    polyhead_status copy_to_device(const void *host, size_t bytes, void *data, size_t byte_offset) noexcept override;
    polyhead_status copy_to_host(const void *data, size_t byte_offset, size_t bytes, void *host) noexcept override;
    bool check(const DeviceRange &range, polyhead_status *status) const noexcept override;
    bool attach(const DeviceRange &range, KernelBuffer *buffer, Attachment *attachment, polyhead_status *status) noexcept override;
    bool attach_element(uint32_t bits, KernelBuffer *buffer, Attachment *attachment) noexcept override;
    void detach(KernelBuffer *buffer, Attachment *attachment, bool ran) noexcept override;

    Context context() const noexcept { return context_; }
    Stream stream() const noexcept { return stream_; }

private:
    polyhead_status result(int error, const char *what) const noexcept;

    const Driver &driver_;
    const int ordinal_;
    const Context context_;
    const Stream stream_;
    const bool primary_;
    ElementSlots elements_;
};

} // namespace polyhead::runtime::cuda
#endif
