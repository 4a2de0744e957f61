// The core's interface to an open device. Its implementations are in runtime/devices and have their own archive.
#ifndef POLYHEAD_RUNTIME_DEVICE_H
#define POLYHEAD_RUNTIME_DEVICE_H

#include <cstddef>
#include <cstdint>

#include <polyhead/c_api.h>

#include "../threads/process.h"
#include "call_context.h"

namespace polyhead::runtime {

struct KernelBuffer;

// Memory of a device behind one buffer of a kernel, while a call runs.
struct Attachment {
    uint64_t offset = 0;     // with memory: the two words that Halide's OpenCL runtime expects behind a buffer's device field
    void *memory = nullptr;  // OpenCL: the buffer that the kernel uses
    void *copy_of = nullptr; // OpenCL: the caller's buffer, when the kernel uses a copy of its bytes
    uint64_t copy_offset = 0, bytes = 0;
    bool owned = false; // OpenCL: memory is released with the attachment
    int slot = -1;      // of a neutral element
};

// A range of bytes of one tensor, relative to its data pointer.
struct DeviceRange {
    const char *name; // of the tensor, for messages
    const void *data;
    int64_t begin, end; // bytes, of lowest and behind the highest element
    int64_t first;      // byte of the first element: begin unless a stride is negative
    bool output;        // the kernel writes it
    bool input;         // of an output: the kernel reads it, too
};

} // namespace polyhead::runtime

struct polyhead_device {
    const int generation = polyhead::runtime::fork_generation(); // of the process that opened it
    int32_t api = POLYHEAD_CPU;
    int32_t capability = 0;          // CUDA: compute capability times 10
    int32_t multiprocessors = 0;     // CUDA; 0: the driver does not tell
    int64_t shared_bytes = 0;        // shared memory of a block, at most; 0: the driver does not tell
    int64_t most_blocks = INT32_MAX; // of one launch, in the second and third dimension of its grid
    char name[160] = "";

    polyhead_device() = default;
    polyhead_device(const polyhead_device &) = delete;
    polyhead_device &operator=(const polyhead_device &) = delete;
    // A driver does not outlive a fork: in a child this device must not be touched, not even to close it.
    bool usable() const noexcept { return generation == polyhead::runtime::fork_generation(); }
    virtual ~polyhead_device() = default; // waits for the work of the device

    virtual polyhead_status synchronize() noexcept = 0;
    virtual polyhead_status allocate(size_t bytes, void **data) noexcept = 0;
    virtual void free(void *data) noexcept = 0;
    virtual polyhead_status copy_to_device(const void *host, size_t bytes, void *data, size_t byte_offset) noexcept = 0;
    virtual polyhead_status copy_to_host(const void *data, size_t byte_offset, size_t bytes, void *host) noexcept = 0;

    // Makes the device ready for what calls of this thread ask of it, until leave(); false and a status when that fails.
    virtual bool enter(polyhead_status *status) noexcept {
        (void)status;
        return true;
    }
    virtual void leave() noexcept {}
    // Whether a call may wait for the device now; false and a status when not.
    virtual bool may_wait(polyhead_status *status) noexcept {
        (void)status;
        return true;
    }
    // Memory of the device with so many bytes of this value, 0 or 1, which nobody changes; null: the device has none. Entered.
    virtual void *neutral_row(uint8_t byte, size_t bytes) noexcept {
        (void)byte;
        (void)bytes;
        return nullptr;
    }

    // Is this memory of this device, and does it hold the range? False and a status when not; nothing is read.
    virtual bool check(const polyhead::runtime::DeviceRange &range, polyhead_status *status) const noexcept = 0;
    // Of memory that check() has accepted: the space whose bytes are counted, and the byte of it that data points to. Null are the
    // addresses of this process, which host memory shares with CUDA: managed memory is seen from both sides at one address.
    virtual const void *space_of(const void *data, uint64_t *byte) const noexcept {
        *byte = reinterpret_cast<uint64_t>(data);
        return nullptr;
    }
    // Puts the range behind the buffer, without a copy wherever the api allows it; detach undoes that, after the kernel was started.
    virtual bool attach(const polyhead::runtime::DeviceRange &range, polyhead::runtime::KernelBuffer *buffer,
                        polyhead::runtime::Attachment *attachment, polyhead_status *status) noexcept = 0;
    // The same for one element of at most four bytes with known bits, of an entered device. Returns false when it is not possible.
    virtual bool attach_element(uint32_t bits, polyhead::runtime::KernelBuffer *buffer,
                                polyhead::runtime::Attachment *attachment) noexcept = 0;
    // ran: the kernel was started, and what it writes is wanted.
    virtual void detach(polyhead::runtime::KernelBuffer *buffer, polyhead::runtime::Attachment *attachment, bool ran) noexcept = 0;
    // Of a buffer with memory on the host, of which the kernel had a copy made on the device: brings what the copy holds back, and frees
    // the copy. 0, or the code of what failed. The first argument is the user context of the call.
    virtual int bring_back(void *user_context, polyhead::runtime::KernelBuffer *buffer) noexcept = 0;
    virtual void free_copy(void *user_context, polyhead::runtime::KernelBuffer *buffer) noexcept = 0;
    // Starts queued work, for drivers that do not start it by themselves.
    virtual void flush() noexcept {}
};

namespace polyhead::runtime {

// A device that calls of this thread have entered, as long as this object exists.
class EnteredDevice {
public:
    EnteredDevice(polyhead_device *device, polyhead_status *status) noexcept : device_(device->enter(status) ? device : nullptr) {}
    ~EnteredDevice() {
        if (device_) {
            device_->leave();
        }
    }
    EnteredDevice(const EnteredDevice &) = delete;
    EnteredDevice &operator=(const EnteredDevice &) = delete;
    // False: a status says why it could not be entered.
    explicit operator bool() const noexcept { return device_ != nullptr; }

private:
    polyhead_device *const device_;
};

// What run() gives, with the device of a call entered; null: the CPU.
template <typename Run> polyhead_status run_entered(polyhead_device *device, const Run &run) noexcept {
    if (!device) {
        return run();
    }
    polyhead_status status{};
    const EnteredDevice entered(device, &status);
    return entered ? run() : status;
}

} // namespace polyhead::runtime

#endif
