// Shared memory of a block, with the last writer and reader of every place since the last barrier.
#ifndef POLYHEAD_INSTRUMENTS_CUDA_DRIVER_SHARED_MEMORY_H
#define POLYHEAD_INSTRUMENTS_CUDA_DRIVER_SHARED_MEMORY_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace polyhead::cuda_driver {

class SharedMemory {
public:
    // base: bytes at the start that belong to nobody. granule: the smallest access of the kernel in bytes, so that two threads in one
    // granule are two threads at one address.
    void resize(size_t base, size_t bytes, int granule);
    // All bytes are NaN again, nothing is known about the past.
    void start_block();
    // A barrier: what was done before cannot race with what comes.
    void pass_barrier() { epoch_++; }

    size_t base() const { return base_; }
    size_t size() const { return bytes_.size(); }
    char *data() { return bytes_.data(); }

    // A copy that arrives later, at the latest possible time: until then the bytes are NaN, and whoever reads or writes them is wrong.
    // Two threads may copy the same bytes to one place.
    bool note_copy(size_t offset, int bytes, int thread, const void *value, int &other);
    void finish_copy(size_t offset, int bytes, int thread);
    bool copy_under_way(size_t offset, int bytes) const;

    // False with the other thread in `other` when that thread touched the same place since the last barrier, one of the two writing.
    // A write that changes nothing (two threads with the same value) is no race.
    bool note_read(size_t offset, int bytes, int thread, int &other) {
        for (size_t at = offset >> shift_; at <= (offset + static_cast<size_t>(bytes) - 1) >> shift_; at++) {
            Place &place = places_[at];
            if (place.copies != 0 || (place.write_epoch == epoch_ && place.writer != thread && place.second_writer != thread)) {
                other = place.writer;
                return false;
            }
            if (place.read_epoch != epoch_) {
                place.read_epoch = epoch_;
                place.reader = place.second_reader = static_cast<int16_t>(thread);
            } else if (place.reader != thread) {
                place.second_reader = static_cast<int16_t>(thread);
            }
        }
        return true;
    }
    bool note_write(size_t offset, int bytes, int thread, const void *value, int &other) {
        for (size_t at = offset >> shift_; at <= (offset + static_cast<size_t>(bytes) - 1) >> shift_; at++) {
            Place &place = places_[at];
            const bool written = place.write_epoch == epoch_ && place.writer != thread;
            const bool read = place.read_epoch == epoch_ && (place.reader != thread || place.second_reader != thread);
            if (place.copies != 0 || ((written || read) && std::memcmp(bytes_.data() + offset, value, static_cast<size_t>(bytes)) != 0)) {
                other = written ? place.writer : place.reader != thread ? place.reader : place.second_reader;
                return false;
            }
            if (!written) {
                place.writer = static_cast<int16_t>(thread);
            }
            place.second_writer = static_cast<int16_t>(thread);
            place.write_epoch = epoch_;
        }
        return true;
    }

private:
    struct Place {
        uint64_t write_epoch = 0, read_epoch = 0;
        int16_t writer = 0, second_writer = 0, reader = 0, second_reader = 0;
        uint16_t copies = 0; // that are under way
    };
    std::vector<char> bytes_, arriving_; // what copies bring
    size_t base_ = 0;
    std::vector<Place> places_;
    uint64_t epoch_ = 1;
    int shift_ = 2;
};

} // namespace polyhead::cuda_driver
#endif
