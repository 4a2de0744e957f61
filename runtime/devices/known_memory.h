// What a driver has told of memory: the allocations of a device that calls have used. To ask it again for each tensor of each call takes
// longer than to start a kernel.
#ifndef POLYHEAD_RUNTIME_GPU_KNOWN_MEMORY_H
#define POLYHEAD_RUNTIME_GPU_KNOWN_MEMORY_H

#include <cstdint>
#include <mutex>

namespace polyhead::runtime {

// An answer may be old: the memory may have been freed by somebody else, and allocated again. So an answer from here lets a call go on, as
// the caller says that the memory is its own, and it never refuses one: what is not inside of known memory is for the driver to judge, and
// what the driver says then is what counts.
class KnownMemory {
public:
    bool holds(uint64_t begin, uint64_t end) const noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (int i = 0; i < count_; ++i) {
            if (begin >= blocks_[i].begin && end <= blocks_[i].end) {
                return true;
            }
        }
        return false;
    }
    // An allocation. What is known of others at the same addresses is older, and wrong.
    void add(uint64_t begin, uint64_t end) noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        remove(begin, end);
        const int place = count_ < most ? count_++ : next_++ % most;
        blocks_[place] = {begin, end};
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
    void remove(uint64_t begin, uint64_t end) noexcept {
        for (int i = 0; i < count_;) {
            if (begin < blocks_[i].end && blocks_[i].begin < end) {
                blocks_[i] = blocks_[--count_];
            } else {
                ++i;
            }
        }
    }

    static constexpr int most = 64; // a server has few large pieces of memory
    mutable std::mutex mutex_;
    Block blocks_[most];
    int count_ = 0;
    unsigned next_ = 0; // to be replaced
};

} // namespace polyhead::runtime
#endif
