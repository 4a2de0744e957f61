// Memory of a device whose bytes are all 0, or all 1: rows that stand for tensors which a call leaves out.
#ifndef POLYHEAD_RUNTIME_GPU_EQUAL_BYTES_H
#define POLYHEAD_RUNTIME_GPU_EQUAL_BYTES_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <vector>

namespace polyhead::runtime {

// Memory{} is none.
template <typename Memory> class EqualBytes {
public:
    // At least so many bytes of this value, 0 or 1; none where make(room) makes none. Memory that has become too short stays, as calls of
    // other threads, and graphs, may be about to read it: so sizes double.
    template <typename Make> Memory of(uint8_t byte, size_t bytes, const Make &make) noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        Row &row = rows_[byte];
        if (row.bytes >= bytes) {
            return row.memory;
        }
        size_t room = std::max<size_t>(row.bytes, 1U << 16);
        while (room < bytes) {
            room *= 2;
        }
        try {
            all_.reserve(all_.size() + 1); // what is made belongs to the list
        } catch (const std::bad_alloc &) {
            return Memory{};
        }
        const Memory memory = make(room);
        if (memory != Memory{}) {
            all_.push_back(memory);
            row = {memory, room};
        }
        return memory;
    }
    // When nothing uses it any more.
    template <typename Free> void free_all(const Free &free) const noexcept { std::for_each(all_.begin(), all_.end(), free); }

private:
    struct Row {
        Memory memory{};
        size_t bytes = 0;
    } rows_[2];
    std::mutex mutex_;
    std::vector<Memory> all_;
};

} // namespace polyhead::runtime
#endif
