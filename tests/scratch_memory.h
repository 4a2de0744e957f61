// Scratch memory of a caller.
#ifndef POLYHEAD_TESTS_SCRATCH_MEMORY_H
#define POLYHEAD_TESTS_SCRATCH_MEMORY_H

#include <cstddef>
#include <cstdint>
#include <new>

namespace polyhead::test {

// Scratch memory of exactly so many bytes, of its own, so that sanitizers see what is written beyond.
class ScratchMemory {
public:
    explicit ScratchMemory(int64_t bytes) : bytes_(static_cast<size_t>(bytes)), memory_(new(std::align_val_t(128)) char[bytes_]()) {}
    ~ScratchMemory() { operator delete[](memory_, std::align_val_t(128)); }
    ScratchMemory(const ScratchMemory &) = delete;
    ScratchMemory &operator=(const ScratchMemory &) = delete;
    void *get() const { return memory_; }
    size_t bytes() const { return bytes_; }

private:
    size_t bytes_;
    char *memory_;
};

} // namespace polyhead::test
#endif
