// A stand-in for an open device: its memory is host memory behind a table of allocations, and it counts what is asked of it.
#ifndef POLYHEAD_TESTS_RUNTIME_FAKE_DEVICE_H
#define POLYHEAD_TESTS_RUNTIME_FAKE_DEVICE_H

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <polyhead/polyhead.h>

#include "../runtime/call/device.h"
#include "../runtime/kernel_interface.h"
#include "../runtime/status.h"

namespace polyhead::test {

class FakeDevice final : public polyhead_device {
public:
    explicit FakeDevice(Api api_ = Api::cuda, int capability_ = 80, const char *name_ = "Fake (cuda 8.0)") {
        api = static_cast<int32_t>(api_);
        capability = capability_;
        std::strncpy(name, name_, sizeof name - 1);
    }
    polyhead_status synchronize() noexcept override {
        ++waits;
        return runtime::success();
    }
    polyhead_status allocate(size_t bytes, void **data) noexcept override {
        std::vector<char> memory(bytes);
        *data = memory.data();
        blocks[*data] = std::move(memory);
        return runtime::success();
    }
    void free(void *data) noexcept override { blocks.erase(data); }
    polyhead_status copy_to_device(const void *host, size_t bytes, void *data, size_t byte_offset) noexcept override {
        ++copies;
        std::memcpy(static_cast<char *>(data) + byte_offset, host, bytes);
        return runtime::success();
    }
    polyhead_status copy_to_host(const void *data, size_t byte_offset, size_t bytes, void *host) noexcept override {
        ++copies;
        std::memcpy(host, static_cast<const char *>(data) + byte_offset, bytes);
        return runtime::success();
    }
    bool check(const runtime::DeviceRange &range, polyhead_status *status) const noexcept override {
        const auto block = blocks.find(const_cast<void *>(range.data));
        if (block == blocks.end() || range.begin < 0 || range.end > static_cast<int64_t>(block->second.size())) {
            return runtime::refuse(status, POLYHEAD_WRONG_DEVICE, "%s: not there", range.name);
        }
        return true;
    }
    bool attach(const runtime::DeviceRange &range, runtime::KernelBuffer *buffer, runtime::Attachment *,
                polyhead_status *status) noexcept override {
        if (range.name == refused_name) {
            return runtime::refuse(status, POLYHEAD_OUT_OF_MEMORY, "%s: no room", range.name);
        }
        ++attached;
        buffer->device = reinterpret_cast<uint64_t>(range.data) + static_cast<uint64_t>(range.first);
        return true;
    }
    bool attach_element(uint32_t bits, runtime::KernelBuffer *buffer, runtime::Attachment *) noexcept override {
        ++attached;
        elements.push_back(bits);
        buffer->device = bits + uint64_t(1); // not 0, and the tests can tell which
        return true;
    }
    void detach(runtime::KernelBuffer *buffer, runtime::Attachment *, bool) noexcept override {
        --attached;
        buffer->device = 0;
    }
    int bring_back(void *, runtime::KernelBuffer *) noexcept override { return 0; } // its kernels make no copies
    void free_copy(void *, runtime::KernelBuffer *) noexcept override {}
    void flush() noexcept override { ++flushes; }

    std::map<void *, std::vector<char>> blocks;
    int waits = 0, copies = 0, attached = 0, flushes = 0;
    std::vector<uint32_t> elements; // in place of tensors that were left out
    std::string refused_name;       // attaching the tensor of this name fails
};

} // namespace polyhead::test
#endif
