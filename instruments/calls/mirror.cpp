// Mirrors of host tensors on a device.
#include "mirror.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "../reference/half.h"
#include "guard.h"

namespace polyhead::test {

namespace {

constexpr size_t canary_bytes = 256; // canary bytes on a side that has them
constexpr uintptr_t page = 4096;

} // namespace

Mirror::Mirror(polyhead_device *device, const polyhead_tensor &host) : device_(device), host_(host), view_(host) {
    if (host.rank == 0) {
        return;
    }
    const int64_t size = dtype_bytes(host.dtype);
    int64_t lowest = 0, highest = 0;
    bool empty = false;
    for (int dim = 0; dim < host.rank; dim++) {
        const int64_t reach = (host.shape[dim] - 1) * host.stride[dim];
        empty = empty || host.shape[dim] == 0;
        lowest += std::min<int64_t>(reach, 0);
        highest += std::max<int64_t>(reach, 0);
    }
    first_byte_ = static_cast<char *>(host.data) + (empty ? 0 : lowest * size);
    bytes_ = empty ? 0 : static_cast<size_t>((highest - lowest + 1) * size);
    // The same alignment as on the host; no canaries where the host's page ends.
    const uintptr_t address = reinterpret_cast<uintptr_t>(first_byte_);
    before_ = address % page == 0 ? 0 : canary_bytes + address % 64;
    after_ = (address + bytes_) % page == 0 && bytes_ != 0 ? 0 : canary_bytes;
    const uint32_t canary = GuardedBuffer::canary;
    sent_.resize(before_ + bytes_ + after_);
    for (size_t at = 0; at < sent_.size(); at++) {
        sent_[at] = reinterpret_cast<const char *>(&canary)[at % sizeof canary];
    }
    std::copy_n(first_byte_, bytes_, sent_.data() + before_);
    status_ = polyhead_device_allocate(device, sent_.size(), &memory_);
    if (status_.code == POLYHEAD_OK) {
        status_ = polyhead_copy_to_device(device, sent_.data(), sent_.size(), memory_, 0);
    }
    view_.data = memory_;
    view_.device = device;
    view_.offset = static_cast<int64_t>(before_) / size - (empty ? 0 : lowest);
}

Mirror::~Mirror() {
    polyhead_device_free(device_, memory_);
}

std::string Mirror::receive(std::vector<char> *bytes) const {
    bytes->resize(sent_.size());
    const polyhead_status status = polyhead_copy_to_host(device_, memory_, 0, bytes->size(), bytes->data());
    return status.code == POLYHEAD_OK ? "" : std::string("copy from the device: ") + status.message;
}

std::string Mirror::read_back() {
    std::vector<char> received;
    const std::string failure = host_.rank == 0 ? "" : receive(&received);
    if (host_.rank == 0 || !failure.empty()) {
        return failure;
    }
    std::copy_n(received.data() + before_, bytes_, first_byte_);
    const bool untouched = std::memcmp(received.data(), sent_.data(), before_) == 0 &&
                           std::memcmp(received.data() + before_ + bytes_, sent_.data() + before_ + bytes_, after_) == 0;
    return untouched ? "" : "memory of the device around it was written";
}

std::string Mirror::find_change() const {
    std::vector<char> received;
    const std::string failure = host_.rank == 0 ? "" : receive(&received);
    return !failure.empty() ? failure : received == sent_ || host_.rank == 0 ? "" : "it was written";
}

} // namespace polyhead::test
