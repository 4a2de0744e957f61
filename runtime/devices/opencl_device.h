// An open OpenCL device: a context of one device, and a queue.
#ifndef POLYHEAD_RUNTIME_GPU_OPENCL_DEVICE_H
#define POLYHEAD_RUNTIME_GPU_OPENCL_DEVICE_H

#include "element_slots.h"
#include "equal_bytes.h"
#include "halide_device.h"
#include "opencl_driver.h"

namespace polyhead::runtime::opencl {

class Device final : public HalideDevice {
public:
    // own_context, own_queue: released with this object.
    Device(const Driver &driver, Object device, Object context, Object queue, bool own_context, bool own_queue) noexcept;
    ~Device() override;

    polyhead_status synchronize() noexcept override;
    polyhead_status allocate(size_t bytes, void **data) noexcept override;
    void free(void *data) noexcept override;
    polyhead_status copy_to_device(const void *host, size_t bytes, void *data, size_t byte_offset) noexcept override;
    polyhead_status copy_to_host(const void *data, size_t byte_offset, size_t bytes, void *host) noexcept override;
    void *neutral_row(uint8_t byte, size_t bytes) noexcept override;
    bool check(const DeviceRange &range, polyhead_status *status) const noexcept override;
    const void *space_of(const void *data, uint64_t *byte) const noexcept override;
    bool attach(const DeviceRange &range, KernelBuffer *buffer, Attachment *attachment, polyhead_status *status) noexcept override;
    bool attach_element(uint32_t bits, KernelBuffer *buffer, Attachment *attachment) noexcept override;
    void detach(KernelBuffer *buffer, Attachment *attachment, bool ran) noexcept override;
    void flush() noexcept override { driver_.flush(queue_); }

    Object context() const noexcept { return context_; }
    Object queue() const noexcept { return queue_; }

private:
    bool is_buffer_here(const void *data) const noexcept;
    bool attach_part(const DeviceRange &range, Attachment *attachment) noexcept;
    bool attach_copy(const DeviceRange &range, Attachment *attachment, polyhead_status *status) noexcept;

    const Driver &driver_;
    const Object context_, queue_;
    const bool own_context_, own_queue_;
    uint64_t part_alignment_ = 1; // bytes that a part of a buffer begins at multiples of
    uintptr_t driver_word_ = 0;   // what objects of its driver begin with; 0: unknown
    ElementSlots elements_;
    EqualBytes<Object> rows_;
};

} // namespace polyhead::runtime::opencl
#endif
