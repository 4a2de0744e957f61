// Shared memory: size, poison, copies that arrive later.
#include "shared_memory.h"

#include <algorithm>
#include <iterator>

namespace polyhead::cuda_driver {

namespace {

constexpr char poison = static_cast<char>(0xff); // NaN as f16, bf16, f32 and f64
constexpr size_t largest_copy = 16, lanes_of_warp = 32, bytes_of_barrier = 8;

} // namespace

void SharedMemory::resize(size_t base, size_t bytes, int granule, bool asynchronous, size_t warps) {
    base_ = base;
    shift_ = granule == 1 ? 0 : granule == 2 ? 1 : 2;
    bytes_.assign(base + bytes, 0);
    arriving_.assign(base + bytes, 0);
    places_.assign(((base + bytes) >> shift_) + 1, Place());
    asynchronous_ = asynchronous;
    warps_ = warps;
    times_.assign(asynchronous ? places_.size() : 0, Times());
    reads_.assign(times_.size() * warps, 0);
}

void SharedMemory::start_block() {
    std::fill(bytes_.begin(), bytes_.end(), poison);
    epoch_++;
    barriers_.clear();
    known_.assign(warps_ * warps_, 0);
    not_fenced_.assign(asynchronous_ ? warps_ * lanes_of_warp : 0, {});
    std::fill(times_.begin(), times_.end(), Times());
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
        asynchronous_ ? time_write(at, thread, place.writer != thread, false) : void();
    }
}

bool SharedMemory::writes_known(size_t at, int thread) const {
    const Place &place = places_[at];
    const int warp = thread / int(lanes_of_warp);
    return knows(warp, place.writer / int(lanes_of_warp), times_[at].write) &&
           knows(warp, place.second_writer / int(lanes_of_warp), times_[at].second_write);
}

bool SharedMemory::reads_known(size_t at, int thread) const {
    const uint64_t *const of_place = reads_.data() + at * warps_;
    const int warp = thread / int(lanes_of_warp);
    for (size_t other = 0; other < warps_; other++) {
        if (of_place[other] != 0 && !knows(warp, static_cast<int>(other), of_place[other])) {
            return false;
        }
    }
    return true;
}

void SharedMemory::forget_reads(size_t at) {
    std::fill_n(reads_.begin() + static_cast<std::ptrdiff_t>(at * warps_), warps_, 0);
}

void SharedMemory::time_read(size_t at, int thread) {
    reads_[at * warps_ + static_cast<size_t>(thread) / lanes_of_warp] = time_;
}

void SharedMemory::time_write(size_t at, int thread, bool second, bool read) {
    Times &times = times_[at];
    times.write = second ? times.write : time_;
    times.second_write = time_;
    if (times.unfenced != thread) {
        times.unfenced = static_cast<int16_t>(thread);
        not_fenced_[static_cast<size_t>(thread)].push_back(static_cast<uint32_t>(at));
    }
    places_[at].read_epoch = read ? places_[at].read_epoch : 0; // other reads before are known, or a race
}

bool SharedMemory::note_product(size_t offset, int bytes, int warp, int &other, bool &unfenced) {
    const int first = warp * int(lanes_of_warp), last = first + int(lanes_of_warp) - 1;
    for (size_t at = offset >> shift_; at <= (offset + static_cast<size_t>(bytes) - 1) >> shift_; at++) {
        Place &place = places_[at];
        unfenced = times_[at].unfenced >= 0;
        if (unfenced || place.copies != 0 || (place.write_epoch == epoch_ && !writes_known(at, first))) {
            other = unfenced ? times_[at].unfenced : place.writer;
            return false;
        }
        if (place.read_epoch != epoch_) {
            forget_reads(at);
        }
        place.read_epoch = epoch_;
        place.reader = static_cast<int16_t>(first);
        place.second_reader = static_cast<int16_t>(last);
        time_read(at, first);
    }
    return true;
}

void SharedMemory::fence_products(int thread) {
    if (!asynchronous_) {
        return;
    }
    std::vector<uint32_t> &places = not_fenced_[static_cast<size_t>(thread)];
    for (const uint32_t at : places) {
        times_[at].unfenced = times_[at].unfenced == thread ? int16_t{-1} : times_[at].unfenced;
    }
    places.clear();
}

MemoryBarrier *SharedMemory::barrier_at(size_t offset) {
    const auto found = barriers_.find(offset);
    return found == barriers_.end() ? nullptr : &found->second;
}

bool SharedMemory::overlaps_barrier(size_t offset, int bytes) const {
    const auto above = barriers_.lower_bound(offset + static_cast<size_t>(bytes));
    return above != barriers_.begin() && std::prev(above)->first + bytes_of_barrier > offset;
}

void SharedMemory::make_barrier(size_t offset, uint32_t expected, int thread) {
    MemoryBarrier &barrier = barriers_[offset];
    barrier = MemoryBarrier();
    barrier.expected = barrier.pending = expected;
    barrier.epoch = epoch_;
    barrier.maker = thread;
    barrier.arriving.assign(warps_, 0);
    barrier.arrived.assign(warps_, 0);
}

void SharedMemory::arrive(MemoryBarrier &barrier, int warp, bool all_of_warp) {
    time_++;
    const uint64_t *const known = known_.data() + static_cast<size_t>(warp) * warps_;
    for (size_t other = 0; all_of_warp && other < warps_; other++) {
        const uint64_t knows = other == static_cast<size_t>(warp) ? time_ : known[other];
        barrier.arriving[other] = std::max(barrier.arriving[other], knows);
    }
    if (--barrier.pending == 0) {
        barrier.pending = barrier.expected;
        barrier.parity ^= 1;
        barrier.arrived = barrier.arriving;
    }
}

void SharedMemory::learn(const MemoryBarrier &barrier, int warp) {
    uint64_t *const known = known_.data() + static_cast<size_t>(warp) * warps_;
    for (size_t other = 0; other < warps_; other++) {
        known[other] = std::max(known[other], barrier.arrived[other]);
    }
}

} // namespace polyhead::cuda_driver
