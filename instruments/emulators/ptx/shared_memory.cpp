// Shared memory: size, poison, copies that arrive later.
#include "shared_memory.h"

#include <algorithm>

namespace polyhead::cuda_driver {

namespace {

constexpr char poison = static_cast<char>(0xff); // NaN as f16, bf16, f32 and f64
constexpr size_t largest_copy = 16;

} // namespace

void SharedMemory::resize(size_t base, size_t bytes, int granule) {
    base_ = base;
    shift_ = granule == 1 ? 0 : granule == 2 ? 1 : 2;
    bytes_.assign(base + bytes, 0);
    arriving_.assign(base + bytes, 0);
    places_.assign(((base + bytes) >> shift_) + 1, Place());
}

void SharedMemory::start_block() {
    std::fill(bytes_.begin(), bytes_.end(), poison);
    epoch_++;
}

bool SharedMemory::copy_under_way(size_t offset, int bytes) const {
    const size_t first = offset >> shift_, last = (offset + static_cast<size_t>(bytes) - 1) >> shift_;
    return std::any_of(places_.begin() + static_cast<std::ptrdiff_t>(first), places_.begin() + static_cast<std::ptrdiff_t>(last) + 1,
                       [](const Place &place) { return place.copies != 0; });
}

bool SharedMemory::note_copy(size_t offset, int bytes, int thread, const void *value, int &other) {
    const size_t count = static_cast<size_t>(bytes);
    char nothing[largest_copy];
    std::fill(nothing, nothing + largest_copy, poison);
    if (!copy_under_way(offset, bytes)) {
        if (!note_write(offset, bytes, thread, value, other)) {
            return false;
        }
    } else if (std::memcmp(arriving_.data() + offset, value, count) != 0) {
        other = places_[offset >> shift_].writer;
        return false;
    }
    std::memcpy(bytes_.data() + offset, nothing, count);
    std::memcpy(arriving_.data() + offset, value, count);
    for (size_t at = offset >> shift_; at <= (offset + count - 1) >> shift_; at++) {
        places_[at].copies++;
    }
    return true;
}

void SharedMemory::finish_copy(size_t offset, int bytes, int thread) {
    const size_t count = static_cast<size_t>(bytes);
    std::memcpy(bytes_.data() + offset, arriving_.data() + offset, count);
    for (size_t at = offset >> shift_; at <= (offset + count - 1) >> shift_; at++) {
        Place &place = places_[at];
        place.copies--;
        if (place.write_epoch != epoch_) {
            place.writer = static_cast<int16_t>(thread);
        }
        place.second_writer = static_cast<int16_t>(thread);
        place.write_epoch = epoch_;
    }
}

} // namespace polyhead::cuda_driver
