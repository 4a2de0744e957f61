// What a driver has told of memory: the allocations of a device that calls have used. To ask it again for each tensor of each call takes
// longer than to start a kernel.
#ifndef POLYHEAD_RUNTIME_GPU_KNOWN_MEMORY_H
#define POLYHEAD_RUNTIME_GPU_KNOWN_MEMORY_H

#include <algorithm>
#include <cstdint>
#include <mutex>

namespace polyhead::runtime {

// An answer may be old: the memory may have been freed by somebody else, and allocated again. So an answer from here lets a call go on, as
// the caller says that the memory is its own, and it never refuses one: what is not inside of known memory is for the driver to judge, and
// what the driver says then is what counts.
class KnownMemory {
public:
    static constexpr int most = 1024; // a model of 80 layers has caches and weights of each

    bool holds(uint64_t begin, uint64_t end) const noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        const Block *const behind = first_behind(begin);
        return behind != blocks_ && end <= (behind - 1)->end;
    }
    // An allocation. What is known of others at the same addresses is older, and wrong.
    void add(uint64_t begin, uint64_t end) noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        remove(begin, end);
        count_ = count_ < most ? count_ : 0; // all are asked for again
        Block *const place = const_cast<Block *>(first_behind(begin));
        std::copy_backward(place, blocks_ + count_, blocks_ + count_ + 1);
        *place = {begin, end};
        ++count_;
    }
    void forget(uint64_t address) noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        remove(address, address + 1);
    }
    void forget_all() noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        count_ = 0;
    }

private:
    struct Block {
        uint64_t begin, end;
    };
    const Block *first_behind(uint64_t address) const noexcept {
        return std::upper_bound(blocks_, blocks_ + count_, address, [](uint64_t a, const Block &block) { return a < block.begin; });
    }
    void remove(uint64_t begin, uint64_t end) noexcept {
        const auto overlaps = [=](const Block &block) { return begin < block.end && block.begin < end; };
        count_ = static_cast<int>(std::remove_if(blocks_, blocks_ + count_, overlaps) - blocks_);
    }

    mutable std::mutex mutex_;
    Block blocks_[most]; // by address; none overlaps another
    int count_ = 0;
};

} // namespace polyhead::runtime
#endif
