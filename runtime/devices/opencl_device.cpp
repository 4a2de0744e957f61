// OpenCL devices: memory, copies and checks on a context and a queue, which Halide's runtime uses, too.
#include "opencl_device.h"

#include <algorithm>

#include "../status.h"
#include "halide_devices.h"
#include "opencl_programs.h"

namespace polyhead::runtime::opencl {
namespace {

enum : unsigned {
    device_base_alignment = 0x1019, // CL_DEVICE_MEM_BASE_ADDR_ALIGN, in bits
    device_local_memory = 0x1023,   // CL_DEVICE_LOCAL_MEM_SIZE, in bytes
    memory_type = 0x1100,
    memory_flags = 0x1101,
    memory_bytes = 0x1102,
    memory_host = 0x1103,
    memory_context = 0x1106,
    memory_parent = 0x1107, // CL_MEM_ASSOCIATED_MEMOBJECT
    memory_offset = 0x1108,
    type_buffer = 0x10F0,
    create_region = 0x1220,
};
constexpr uint64_t read_write = 1, use_host_memory = 8;
constexpr unsigned wait = 1, no_wait = 0;

// What Halide 21 expects behind a buffer's device field.
static_assert(offsetof(Attachment, offset) == 0 && offsetof(Attachment, memory) == 8, "an Attachment begins as Halide's device_handle");

} // namespace

Device::Device(const Driver &driver, Object device, Object context, Object queue, bool own_context, bool own_queue) noexcept
    : driver_(driver), context_(context), queue_(queue), own_context_(own_context), own_queue_(own_queue) {
    api = POLYHEAD_OPENCL;
    driver_word_ = first_word(context, &driver_word_) ? driver_word_ : 0;
    unsigned bits = 0;
    if (driver_.device_info(device, device_base_alignment, sizeof bits, &bits, nullptr) == 0 && bits >= 8) {
        part_alignment_ = bits / 8;
    }
    uint64_t bytes = 0;
    if (driver_.device_info(device, device_local_memory, sizeof bytes, &bytes, nullptr) == 0) {
        shared_bytes = static_cast<int64_t>(std::min<uint64_t>(bytes, INT64_MAX));
    }
}

Device::~Device() {
    driver_.finish(queue_);
    elements_.clear([this](void *memory) { driver_.release_memory(memory); });
    rows_.free_all([this](Object row) { driver_.release_memory(row); });
    closed(driver_, context_);
    if (own_queue_) {
        driver_.release_queue(queue_);
    }
    if (own_context_) {
        driver_.release_context(context_);
    }
}

polyhead_status Device::synchronize() noexcept {
    const int error = driver_.finish(queue_);
    return error ? failed(name, "waiting for its queue", error) : success();
}

polyhead_status Device::allocate(size_t bytes, void **data) noexcept {
    int error = 0;
    *data = driver_.create_buffer(context_, read_write, bytes, nullptr, &error);
    return error ? failed(name, "allocating", error) : success();
}

void Device::free(void *data) noexcept {
    driver_.release_memory(data);
}

polyhead_status Device::copy_to_device(const void *host, size_t bytes, void *data, size_t byte_offset) noexcept {
    const int error = driver_.write(queue_, data, wait, byte_offset, bytes, host, 0, nullptr, nullptr);
    return error ? failed(name, "copying to it", error) : success();
}

polyhead_status Device::copy_to_host(const void *data, size_t byte_offset, size_t bytes, void *host) noexcept {
    const int error = driver_.read(queue_, const_cast<void *>(data), wait, byte_offset, bytes, host, 0, nullptr, nullptr);
    return error ? failed(name, "copying from it", error) : success();
}

// The loader calls a function through the first word of any object that it gets, so check that word first.
bool Device::is_buffer_here(const void *data) const noexcept {
    uintptr_t word = 0;
    unsigned type = 0;
    return driver_word_ != 0 && first_word(data, &word) && word == driver_word_ &&
           driver_.memory_info(const_cast<void *>(data), memory_type, sizeof type, &type, nullptr) == 0 && type == type_buffer;
}

bool Device::check(const DeviceRange &range, polyhead_status *status) const noexcept {
    if (!is_buffer_here(range.data)) {
        return refuse(status, POLYHEAD_WRONG_DEVICE, "%s: %p is not an OpenCL buffer of this driver, expected a cl_mem of device %s",
                      range.name, range.data, name);
    }
    const Object memory = const_cast<void *>(range.data);
    Object context = nullptr;
    size_t bytes = 0;
    driver_.memory_info(memory, memory_context, sizeof context, &context, nullptr);
    driver_.memory_info(memory, memory_bytes, sizeof bytes, &bytes, nullptr);
    if (context != context_) {
        return refuse(status, POLYHEAD_WRONG_DEVICE, "%s: a buffer of another context, expected one of device %s", range.name, name);
    }
    if (range.begin < range.first) {
        return refuse(status, POLYHEAD_WRONG_STRIDE, "%s: a negative stride, expected 0 or more on an OpenCL device", range.name);
    }
    if (range.end > static_cast<int64_t>(bytes)) {
        return refuse(status, POLYHEAD_WRONG_DEVICE, "%s: reaches to byte %lld of its buffer, expected at most %zu, which it has",
                      range.name, static_cast<long long>(range.end), bytes);
    }
    return true;
}

// Parts of one buffer are one space, and so are buffers over memory of the host.
const void *Device::space_of(const void *data, uint64_t *byte) const noexcept {
    Object memory = const_cast<void *>(data), parent = nullptr;
    size_t offset = 0;
    driver_.memory_info(memory, memory_parent, sizeof parent, &parent, nullptr);
    if (parent) {
        driver_.memory_info(memory, memory_offset, sizeof offset, &offset, nullptr);
        memory = parent;
    }
    *byte = offset;
    uint64_t flags = 0;
    void *host = nullptr;
    driver_.memory_info(memory, memory_flags, sizeof flags, &flags, nullptr);
    if ((flags & use_host_memory) != 0 && driver_.memory_info(memory, memory_host, sizeof host, &host, nullptr) == 0 && host) {
        *byte += reinterpret_cast<uint64_t>(host);
        return nullptr;
    }
    return memory;
}

// A tensor that does not begin where its buffer does is a part of it, where the device allows parts.
bool Device::attach_part(const DeviceRange &range, Attachment *attachment) noexcept {
    const Object memory = const_cast<void *>(range.data);
    Object parent = nullptr;
    driver_.memory_info(memory, memory_parent, sizeof parent, &parent, nullptr);
    if (parent || static_cast<uint64_t>(range.first) % part_alignment_ != 0) {
        return false;
    }
    const size_t region[] = {static_cast<size_t>(range.first), static_cast<size_t>(range.end - range.first)};
    int error = 0;
    const Object part = driver_.create_sub_buffer(memory, 0, create_region, region, &error); // 0: may be used as the whole may
    if (error) {
        return false;
    }
    attachment->memory = part;
    attachment->owned = true;
    return true;
}

// Elsewhere the kernel works on a copy, on the device. What lies between the elements of an output travels both ways.
bool Device::attach_copy(const DeviceRange &range, Attachment *attachment, polyhead_status *status) noexcept {
    const Object memory = const_cast<void *>(range.data);
    const size_t offset = static_cast<size_t>(range.first), bytes = static_cast<size_t>(range.end - range.first);
    int error = 0;
    const Object copy = driver_.create_buffer(context_, read_write, bytes, nullptr, &error);
    if (!error) {
        error = driver_.copy(queue_, memory, copy, offset, 0, bytes, 0, nullptr, nullptr);
    }
    if (error) {
        if (copy) {
            driver_.release_memory(copy);
        }
        *status = failed(name, range.name, error);
        return false;
    }
    attachment->memory = copy;
    attachment->owned = true;
    if (range.output) {
        attachment->copy_of = memory;
        attachment->copy_offset = offset;
        attachment->bytes = bytes;
    }
    return true;
}

bool Device::attach(const DeviceRange &range, KernelBuffer *buffer, Attachment *attachment, polyhead_status *status) noexcept {
    *attachment = Attachment{};
    if (range.first == 0) {
        attachment->memory = const_cast<void *>(range.data);
    } else if (!attach_part(range, attachment) && !attach_copy(range, attachment, status)) {
        return false;
    }
    buffer->device = reinterpret_cast<uint64_t>(attachment);
    buffer->device_interface = halide_opencl_device_interface();
    return true;
}

// Filled in the order of the queue, in which kernels read it.
void *Device::neutral_row(uint8_t byte, size_t bytes) noexcept {
    return rows_.of(byte, bytes, [&](size_t room) -> Object {
        int error = 0;
        const Object memory = driver_.create_buffer(context_, read_write, room, nullptr, &error);
        if (!memory || error) {
            return nullptr;
        }
        if (driver_.fill(queue_, memory, &byte, 1, 0, room, 0, nullptr, nullptr) != 0) {
            driver_.release_memory(memory);
            return nullptr;
        }
        return memory;
    });
}

bool Device::attach_element(uint32_t bits, KernelBuffer *buffer, Attachment *attachment) noexcept {
    *attachment = Attachment{};
    attachment->slot = elements_.take(bits, [this](void **memory, uint32_t value) {
        int error = 0;
        if (!*memory) {
            *memory = driver_.create_buffer(context_, read_write, sizeof value, nullptr, &error);
        }
        return *memory && driver_.fill(queue_, *memory, &value, sizeof value, 0, sizeof value, 0, nullptr, nullptr) == 0;
    });
    if (attachment->slot < 0) {
        return false;
    }
    attachment->memory = elements_.memory(attachment->slot);
    buffer->device = reinterpret_cast<uint64_t>(attachment);
    buffer->device_interface = halide_opencl_device_interface();
    return true;
}

void Device::detach(KernelBuffer *buffer, Attachment *attachment, bool ran) noexcept {
    buffer->device = 0;
    buffer->device_interface = nullptr;
    if (attachment->slot >= 0) {
        elements_.release(attachment->slot);
    }
    if (attachment->copy_of && ran) {
        driver_.copy(queue_, attachment->memory, attachment->copy_of, 0, attachment->copy_offset, attachment->bytes, 0, nullptr, nullptr);
    }
    if (attachment->owned) {
        driver_.release_memory(attachment->memory); // commands that wait for their turn hold references of their own
    }
}

} // namespace polyhead::runtime::opencl
