// Memory for test tensors: unmapped pages right before and right after, a canary in every byte that is not the tensor's.
#ifndef POLYHEAD_INSTRUMENTS_GUARD_H
#define POLYHEAD_INSTRUMENTS_GUARD_H

#include <cstddef>
#include <cstdint>

namespace polyhead::test {

// Where the bytes lie in the mapped pages: against the unmapped page after them, against the one before, or between canaries.
enum class Place { inside, at_end, at_begin };
const char *place_name(Place place);

class GuardedBuffer {
public:
    GuardedBuffer() = default;
    // All mapped bytes hold the canary. Without bytes, data() is the border to an unmapped page: any access faults.
    GuardedBuffer(size_t bytes, Place place);
    ~GuardedBuffer();
    GuardedBuffer(GuardedBuffer &&other) noexcept;
    GuardedBuffer &operator=(GuardedBuffer &&other) noexcept;

    void *data() const { return data_; }
    size_t bytes() const { return bytes_; }
    // From here on a write to these pages faults.
    void make_read_only();
    // True when every mapped word, inside data() too, holds the canary.
    bool all_canary() const;
    // The same of the words outside of data().
    bool margins_canary() const;

    // A quiet NaN of its own, in f32 and, half by half, in f16 and bf16: an output element that still holds it was never written.
    static constexpr uint32_t canary = 0x7fc57fc5u;
    static constexpr uint16_t canary_16 = 0x7fc5u;

private:
    char *mapping_ = nullptr;
    size_t mapped_ = 0; // with both guard pages
    char *data_ = nullptr;
    size_t bytes_ = 0;
};

} // namespace polyhead::test
#endif
