// Device allocations: host memory with artificial addresses.
#include "device_memory.h"

#include <cstring>
#include <new>

namespace polyhead::cuda_driver {

namespace {

constexpr uint64_t alignment = 256, gap = 4096; // as of a real driver; between two allocations nothing is valid
constexpr int poison = 0xff;                    // NaN as f16, bf16, f32 and f64, -1 as an integer

} // namespace

uint64_t DeviceMemory::allocate(size_t bytes, const void *owner) {
    if (bytes > limit_ - used_) {
        return 0;
    }
    Allocation allocation;
    allocation.host.reset(new (std::nothrow) char[bytes]);
    if (!allocation.host) {
        return 0;
    }
    std::memset(allocation.host.get(), poison, bytes);
    allocation.begin = next_;
    allocation.end = next_ + bytes;
    allocation.owner = owner;
    next_ = (allocation.end + gap + alignment - 1) / alignment * alignment;
    used_ += bytes;
    const uint64_t address = allocation.begin;
    allocations_.emplace(address, std::move(allocation));
    return address;
}

bool DeviceMemory::release(uint64_t address) {
    const auto found = allocations_.find(address);
    if (found == allocations_.end()) {
        return false;
    }
    used_ -= found->second.end - found->second.begin;
    allocations_.erase(found);
    return true;
}

void DeviceMemory::release_all_of(const void *owner) {
    for (auto at = allocations_.begin(); at != allocations_.end();) {
        if (at->second.owner == owner) {
            used_ -= at->second.end - at->second.begin;
            at = allocations_.erase(at);
        } else {
            ++at;
        }
    }
}

const Allocation *DeviceMemory::find(uint64_t address, size_t bytes) const {
    auto after = allocations_.upper_bound(address);
    if (after == allocations_.begin()) {
        return nullptr;
    }
    const Allocation &allocation = std::prev(after)->second;
    return bytes <= allocation.end - allocation.begin && address <= allocation.end - bytes ? &allocation : nullptr;
}

std::string DeviceMemory::describe(uint64_t address) const {
    auto after = allocations_.upper_bound(address);
    if (after != allocations_.begin()) {
        const Allocation &before = std::prev(after)->second;
        if (address >= before.end && (after == allocations_.end() || address - before.end <= after->first - address)) {
            return std::to_string(address - before.end) + " bytes behind the end of an allocation of " +
                   std::to_string(before.end - before.begin) + " bytes";
        }
        if (address < before.end) {
            return std::to_string(before.end - address) + " bytes before the end of an allocation of " +
                   std::to_string(before.end - before.begin) + " bytes";
        }
    }
    if (after != allocations_.end()) {
        return std::to_string(after->first - address) + " bytes before an allocation of " +
               std::to_string(after->second.end - after->first) + " bytes";
    }
    return "the device has no allocation";
}

} // namespace polyhead::cuda_driver
