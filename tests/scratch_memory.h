// Scratch memory of a caller.
#ifndef POLYHEAD_TESTS_SCRATCH_MEMORY_H
#define POLYHEAD_TESTS_SCRATCH_MEMORY_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

namespace polyhead::test {

// Scratch memory of exactly so many bytes. Behind them lie bytes that nothing may write: sanitizers do not find that, because the library
// itself marks what it uses.
class ScratchMemory {
public:
    explicit ScratchMemory(int64_t bytes)
        : bytes_(static_cast<size_t>(bytes)), memory_(new(std::align_val_t(alignment)) char[bytes_ + behind]()) {
        std::memset(memory_ + bytes_, canary, behind);
    }
    ~ScratchMemory() { operator delete[](memory_, std::align_val_t(alignment)); }
    ScratchMemory(const ScratchMemory &) = delete;
    ScratchMemory &operator=(const ScratchMemory &) = delete;
    void *get() const { return memory_; }
    size_t bytes() const { return bytes_; }
    bool untouched_behind() const {
        return std::all_of(memory_ + bytes_, memory_ + bytes_ + behind, [](char byte) { return byte == canary; });
    }

private:
    static constexpr size_t alignment = 128, behind = 256 << 10;
    static constexpr char canary = 0x5a;
    size_t bytes_;
    char *memory_;
};

} // namespace polyhead::test
#endif
