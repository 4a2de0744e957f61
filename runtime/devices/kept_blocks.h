// Memory of a device that kernels use between their stages, kept for the next call.
#ifndef POLYHEAD_RUNTIME_GPU_KEPT_BLOCKS_H
#define POLYHEAD_RUNTIME_GPU_KEPT_BLOCKS_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <vector>

namespace polyhead::runtime {

// A block that is given back may still be used by kernels that were started before: whoever takes it next works in the same order of the
// device's stream.
class KeptBlocks {
public:
    // Sizes in steps of an eighth to a quarter, so that a sequence that grows by a token at a time does not need a block of its own each
    // time.
    static size_t rounded(size_t bytes) noexcept {
        constexpr size_t least = 4096;
        size_t step = least / 4;
        while (step * 8 <= bytes) {
            step *= 2;
        }
        return std::max(least, (bytes + step - 1) / step * step);
    }

    // The smallest that is large enough, or 0.
    uint64_t take(size_t bytes) noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        Block *best = nullptr;
        for (Block &block : blocks_) {
            if (!block.taken && block.bytes >= bytes && (!best || block.bytes < best->bytes)) {
                best = &block;
            }
        }
        if (!best) {
            return 0;
        }
        best->taken = true;
        return best->address;
    }
    // A new one, which is taken. False without memory on the host.
    bool add(uint64_t address, size_t bytes) noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        try {
            blocks_.push_back({address, bytes, true});
        } catch (const std::bad_alloc &) {
            return false;
        }
        return true;
    }
    // False: none of them.
    bool give_back(uint64_t address) noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (Block &block : blocks_) {
            if (block.address == address) {
                block.taken = false;
                return true;
            }
        }
        return false;
    }
    // Those below a size that nobody has.
    template <typename Free> void free_unused(size_t below, const Free &free) noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto gone = std::partition(blocks_.begin(), blocks_.end(), [&](const Block &b) { return b.taken || b.bytes >= below; });
        std::for_each(gone, blocks_.end(), [&](const Block &block) { free(block.address); });
        blocks_.erase(gone, blocks_.end());
    }

private:
    struct Block {
        uint64_t address;
        size_t bytes;
        bool taken;
    };
    std::mutex mutex_;
    std::vector<Block> blocks_;
};

} // namespace polyhead::runtime
#endif
