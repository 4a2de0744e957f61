// Where one call takes its memory: from this library, or from scratch memory of the caller.
#ifndef POLYHEAD_RUNTIME_CALL_MEMORY_H
#define POLYHEAD_RUNTIME_CALL_MEMORY_H

#include <cstddef>
#include <cstdint>

namespace polyhead::runtime {

// Counts how much is held at once, in the same way for both, so that the number for one call is exact for an equal one.
class CallMemory {
public:
    CallMemory() noexcept = default;
    // scratch: at a multiple of 128 bytes; null: memory of this library.
    CallMemory(void *scratch, size_t bytes) noexcept : scratch_(static_cast<char *>(scratch)), bytes_(bytes) {}
    CallMemory(const CallMemory &) = delete;
    CallMemory &operator=(const CallMemory &) = delete;

    bool of_caller() const noexcept { return scratch_ != nullptr; }
    // The caller's scratch memory was too small for something.
    bool too_small() const noexcept { return too_small_; }
    // The most bytes that were held at once, or foreseen. INT64_MAX: more than there is.
    int64_t most() const noexcept { return most_; }
    // Bytes that would be held in addition to what is held now, without taking them.
    void foresee(int64_t bytes) noexcept;

private:
    friend class CallBlock;
    void *take(int64_t bytes) noexcept;
    void give(void *block, int64_t bytes) noexcept;

    char *scratch_ = nullptr;
    size_t bytes_ = 0;
    int64_t used_ = 0, most_ = 0;
    bool too_small_ = false;
};

// A block of it while this object lives, at a multiple of 128 bytes. Blocks end in reverse order.
class CallBlock {
public:
    CallBlock() noexcept = default;
    ~CallBlock() { give(); }
    CallBlock(const CallBlock &) = delete;
    CallBlock &operator=(const CallBlock &) = delete;

    // Null when it cannot be had. Nothing may be held.
    char *take(CallMemory *memory, int64_t bytes) noexcept;
    char *get() const noexcept { return block_; }

private:
    void give() noexcept;

    CallMemory *memory_ = nullptr;
    char *block_ = nullptr;
    int64_t bytes_ = 0;
};

} // namespace polyhead::runtime
#endif
