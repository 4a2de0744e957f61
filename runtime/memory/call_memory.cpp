// Memory of one call.
#include "call_memory.h"

#include <algorithm>

#include "memory.h"
#include "scratch.h"

namespace polyhead::runtime {
namespace {

constexpr int64_t unit = Scratch::alignment, most_countable = int64_t(1) << 60; // sums of a few blocks do not overflow

int64_t rounded(int64_t bytes) noexcept {
    return bytes < 0 || bytes > most_countable ? INT64_MAX : (bytes + unit - 1) / unit * unit;
}

} // namespace

void CallMemory::foresee(int64_t bytes) noexcept {
    const int64_t more = rounded(bytes);
    most_ = std::max(most_, more == INT64_MAX ? more : used_ + more);
}

void *CallMemory::take(int64_t bytes) noexcept {
    foresee(bytes);
    const int64_t more = rounded(bytes);
    if (more == INT64_MAX) {
        return nullptr;
    }
    void *block = nullptr;
    if (!of_caller()) {
        block = take_memory(static_cast<size_t>(more));
    } else if (static_cast<size_t>(used_ + more) <= bytes_) {
        block = scratch_ + used_;
    } else {
        too_small_ = true;
    }
    used_ += block ? more : 0;
    return block;
}

void CallMemory::give(void *block, int64_t bytes) noexcept {
    used_ -= rounded(bytes);
    if (!of_caller()) {
        give_memory(block);
    }
}

char *CallBlock::take(CallMemory *memory, int64_t bytes) noexcept {
    block_ = static_cast<char *>(memory->take(bytes));
    memory_ = memory;
    bytes_ = bytes;
    return block_;
}

void CallBlock::give() noexcept {
    if (block_) {
        memory_->give(block_, bytes_);
    }
}

} // namespace polyhead::runtime
