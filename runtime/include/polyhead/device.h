// Devices in C++: an open device that closes itself. Included by polyhead.h; a program that opens one links polyhead::gpu.
//
//     polyhead::Device device;
//     polyhead::Status status = polyhead::Device::open(polyhead::Api::cuda, 0, &device);
//     args.query = polyhead::view(device, pointer, polyhead::DType::f32, {batch, heads, seq_len, head_dim});
//     args.device = &device;
//     status = kernel.run(args);             // returns after the launch when all tensors are on the device
//     status = device.synchronize();
#ifndef POLYHEAD_DEVICE_H
#define POLYHEAD_DEVICE_H

#include <cstddef>
#include <cstdint>
#include <utility>

#include <polyhead/c_api.h>

namespace polyhead {

class Weights;

// The outcome of a call: a code and one sentence that names tensor, dimension, found and expected.
class Status {
public:
    Status() noexcept : raw_{} {}
    explicit Status(const polyhead_status &raw) noexcept : raw_(raw) {}
    bool ok() const noexcept { return raw_.code == POLYHEAD_OK; }
    polyhead_code code() const noexcept { return static_cast<polyhead_code>(raw_.code); }
    const char *message() const noexcept { return raw_.message; }

private:
    polyhead_status raw_;
};

enum class Api : int32_t {
    cpu = POLYHEAD_CPU,
    cuda = POLYHEAD_CUDA,
    opencl = POLYHEAD_OPENCL,
    vulkan = POLYHEAD_VULKAN,
    metal = POLYHEAD_METAL,
    webgpu = POLYHEAD_WEBGPU,
};

// An open device, or none. Movable. The destructor waits for the device's work and closes it; free everything on the device before.
class Device {
public:
    Device() noexcept = default;
    ~Device() { polyhead_close_device(raw_); }
    Device(Device &&other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    Device &operator=(Device &&other) noexcept {
        std::swap(raw_, other.raw_);
        return *this;
    }
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;

    // Opens the device with this index, or the device of a context that belongs to the caller, with the caller's stream or queue; see
    // polyhead_device_options. Inline, so that only programs that open devices need libpolyhead_gpu.
    static Status open(Api api, int index, Device *device, void *context = nullptr, void *stream = nullptr) noexcept {
        const polyhead_device_options options{static_cast<int32_t>(api), index, context, stream};
        Device opened;
        const polyhead_status status = polyhead_open_device(&options, &opened.raw_);
        if (device) {
            *device = std::move(opened);
        }
        return Status(status);
    }
    static int count(Api api) noexcept { return polyhead_device_count(static_cast<int32_t>(api)); }

    explicit operator bool() const noexcept { return raw_ != nullptr; }
    polyhead_device *raw() const noexcept { return raw_; }

    // Waits until everything that was started on this device's stream is done.
    Status synchronize() const noexcept { return Status(polyhead_synchronize(raw_)); }

    Status allocate(size_t bytes, void **data) const noexcept { return Status(polyhead_device_allocate(raw_, bytes, data)); }
    void free(void *data) const noexcept { polyhead_device_free(raw_, data); }
    Status copy_to_device(const void *host, size_t bytes, void *data, size_t byte_offset = 0) const noexcept {
        return Status(polyhead_copy_to_device(raw_, host, bytes, data, byte_offset));
    }
    Status copy_to_host(const void *data, size_t byte_offset, size_t bytes, void *host) const noexcept {
        return Status(polyhead_copy_to_host(raw_, data, byte_offset, bytes, host));
    }
    // Copies packed weights to this device. Free them before the device is closed.
    Status put(const Weights &host, Weights *on_device) const noexcept;

private:
    polyhead_device *raw_ = nullptr;
};

} // namespace polyhead
#endif
