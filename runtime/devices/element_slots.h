// Single elements of four bytes on a device. A call that leaves an optional tensor out needs its neutral element there (all keys are
// valid, nothing is added); copying it each time would wait for the device, so a few are kept and filled in the order of the device's
// stream.
#ifndef POLYHEAD_RUNTIME_GPU_ELEMENT_SLOTS_H
#define POLYHEAD_RUNTIME_GPU_ELEMENT_SLOTS_H

#include <cstdint>
#include <mutex>

namespace polyhead::runtime {

class ElementSlots {
public:
    // A slot that holds the bits for whatever is started before release(), or -1. fill(&memory, bits) makes memory where it is
    // null, and starts writing; work that was started earlier still sees what was there before.
    template <typename Fill> int take(uint32_t bits, const Fill &fill) noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        int unused = -1;
        for (int i = 0; i < count_; ++i) {
            if (slots_[i].filled && slots_[i].bits == bits) {
                ++slots_[i].users;
                return i;
            }
            if (slots_[i].users == 0 && unused < 0) {
                unused = i;
            }
        }
        // A new slot before an old one is overwritten: decoding comes back to the same few key lengths.
        const int chosen = count_ < most ? count_ : unused;
        if (chosen < 0) {
            return -1;
        }
        Slot &slot = slots_[chosen];
        slot.filled = false;
        if (!fill(&slot.memory, bits)) {
            return -1;
        }
        count_ = chosen == count_ ? count_ + 1 : count_;
        slot.bits = bits;
        slot.filled = true;
        slot.users = 1;
        return chosen;
    }

    void *memory(int slot) noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        return slots_[slot].memory;
    }

    void release(int slot) noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        --slots_[slot].users;
    }

    template <typename Free> void clear(const Free &free) noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (Slot &slot : slots_) {
            if (slot.memory) {
                free(slot.memory);
            }
            slot = Slot{};
        }
        count_ = 0;
    }

private:
    struct Slot {
        void *memory = nullptr;
        uint32_t bits = 0;
        bool filled = false;
        int32_t users = 0;
    };
    static constexpr int most = 64;
    std::mutex mutex_;
    Slot slots_[most];
    int count_ = 0;
};

} // namespace polyhead::runtime
#endif
