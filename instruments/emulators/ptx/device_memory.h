// The memory of one device: allocations at addresses of their own, which no host pointer can equal.
#ifndef POLYHEAD_INSTRUMENTS_CUDA_DRIVER_DEVICE_MEMORY_H
#define POLYHEAD_INSTRUMENTS_CUDA_DRIVER_DEVICE_MEMORY_H

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace polyhead::cuda_driver {

// Windows of the generic address space. All lie above 2^47, where a process has no memory: a program that follows one faults.
constexpr uint64_t shared_window = uint64_t{1} << 48, local_window = shared_window + (uint64_t{1} << 32);
constexpr uint64_t window_bytes = uint64_t{1} << 24, device_window = uint64_t{1} << 50;

struct Allocation {
    uint64_t begin = 0, end = 0;  // device addresses
    std::unique_ptr<char[]> host; // the bytes
    const void *owner = nullptr;  // the context that asked for it
    bool writable = true;
    // Which block (from 1 on) wrote the 16 bits at each place in this launch; empty until one does.
    mutable std::vector<uint32_t> writers;
    mutable uint64_t writers_launch = 0;
};

class DeviceMemory {
public:
    DeviceMemory() = default;
    DeviceMemory(int device, size_t limit) : next_(device_window * (static_cast<uint64_t>(device) + 1)), limit_(limit) {}

    // 0 when the device has not enough left. New memory holds NaN in every float format.
    uint64_t allocate(size_t bytes, const void *owner);
    bool release(uint64_t address);
    void release_all_of(const void *owner);
    // Null when not all of the bytes lie in one allocation.
    const Allocation *find(uint64_t address, size_t bytes) const;
    Allocation *find(uint64_t address, size_t bytes) {
        return const_cast<Allocation *>(const_cast<const DeviceMemory *>(this)->find(address, bytes));
    }
    // "128 bytes behind the end of an allocation of 4096 bytes"
    std::string describe(uint64_t address) const;

    size_t used() const { return used_; }
    size_t limit() const { return limit_; }
    size_t count() const { return allocations_.size(); }

private:
    std::map<uint64_t, Allocation> allocations_; // by begin
    uint64_t next_ = device_window;              // addresses are never used twice, so that an access after a release is found
    size_t limit_ = 0, used_ = 0;
};

} // namespace polyhead::cuda_driver
#endif
