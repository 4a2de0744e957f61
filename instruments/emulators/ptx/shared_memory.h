// Shared memory of a block, with the last writer and reader of every place since the last barrier.
#ifndef POLYHEAD_INSTRUMENTS_CUDA_DRIVER_SHARED_MEMORY_H
#define POLYHEAD_INSTRUMENTS_CUDA_DRIVER_SHARED_MEMORY_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace polyhead::cuda_driver {

// A barrier in shared memory (mbarrier): its phase ends when as many threads as it expects have arrived.
struct MemoryBarrier {
    uint32_t expected = 0, pending = 0, parity = 0;
    uint64_t epoch = 0; // when it was made, and by which thread
    int maker = 0;
    std::vector<uint64_t> arriving, arrived; // by warp: what whoever waits for this phase, for the one before, knows of the others
};

class SharedMemory {
public:
    // base: bytes at the start that belong to nobody. granule: the smallest access of the kernel in bytes, so that two threads in one
    // granule are two threads at one address. asynchronous: the block has barriers in memory or products that read it, of so many warps.
    void resize(size_t base, size_t bytes, int granule, bool asynchronous, size_t warps);
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
            const bool written = place.write_epoch == epoch_ && place.writer != thread && place.second_writer != thread;
            if (place.copies != 0 || (written && !(asynchronous_ && writes_known(at, thread)))) {
                other = place.writer;
                return false;
            }
            if (place.read_epoch != epoch_) {
                place.read_epoch = epoch_;
                place.reader = place.second_reader = static_cast<int16_t>(thread);
                asynchronous_ ? forget_reads(at) : void();
            } else if (place.reader != thread) {
                place.second_reader = static_cast<int16_t>(thread);
            }
            asynchronous_ ? time_read(at, thread) : void();
        }
        return true;
    }
    bool note_write(size_t offset, int bytes, int thread, const void *value, int &other) {
        for (size_t at = offset >> shift_; at <= (offset + static_cast<size_t>(bytes) - 1) >> shift_; at++) {
            Place &place = places_[at];
            const bool written = place.write_epoch == epoch_ && place.writer != thread && !(asynchronous_ && writes_known(at, thread));
            const bool read = place.read_epoch == epoch_ && (place.reader != thread || place.second_reader != thread) &&
                              !(asynchronous_ && reads_known(at, thread));
            if (place.copies != 0 || ((written || read) && std::memcmp(bytes_.data() + offset, value, static_cast<size_t>(bytes)) != 0)) {
                other = written ? place.writer : place.reader != thread ? place.reader : place.second_reader;
                return false;
            }
            if (!written) {
                place.writer = static_cast<int16_t>(thread);
            }
            place.second_writer = static_cast<int16_t>(thread);
            place.write_epoch = epoch_;
            asynchronous_ ? time_write(at, thread, written, read) : void();
        }
        return true;
    }

    // A product of a warpgroup reads through another path than threads do. All lanes of a warp wait for it, so what any thread has written
    // must be known to the warp, also by itself; and the path sees only what the writer has fenced. False: `unfenced` says which of both.
    bool note_product(size_t offset, int bytes, int warp, int &other, bool &unfenced);
    // What this thread has written is there for products.
    void fence_products(int thread);

    // Barriers in memory, by their offset. Null: there is none.
    MemoryBarrier *barrier_at(size_t offset);
    bool touches_barrier(size_t offset, int bytes) const { return !barriers_.empty() && overlaps_barrier(offset, bytes); }
    void make_barrier(size_t offset, uint32_t expected, int thread);
    // Whether this thread may use it: another thread made it, and no barrier has passed since.
    bool knows_barrier(const MemoryBarrier &barrier, int thread) const { return barrier.epoch < epoch_ || barrier.maker == thread; }
    // One thread arrives. all_of_warp: the others of its warp do so, too; what one of several does says nothing of the others.
    void arrive(MemoryBarrier &barrier, int warp, bool all_of_warp);
    // A warp has seen the end of the phase before: it knows what those that arrived there knew, and had done.
    void learn(const MemoryBarrier &barrier, int warp);
    uint64_t arrivals() const { return time_; }

private:
    struct Place {
        uint64_t write_epoch = 0, read_epoch = 0;
        int16_t writer = 0, second_writer = 0, reader = 0, second_reader = 0;
        uint16_t copies = 0; // that are under way
    };
    // Of kernels with barriers in memory: times are counted in arrivals, because order comes only by them.
    struct Times {
        uint64_t write = 0, second_write = 0;
        int16_t unfenced = -1; // the thread that has written last, until its fence
    };
    bool knows(int warp, int other, uint64_t time) const {
        return known_[static_cast<size_t>(warp) * warps_ + static_cast<size_t>(other)] > time;
    }
    bool overlaps_barrier(size_t offset, int bytes) const;
    bool writes_known(size_t at, int thread) const;
    bool reads_known(size_t at, int thread) const;
    void forget_reads(size_t at);
    void time_read(size_t at, int thread);
    // second: of several threads that write the same. read: by a thread that the writer knows nothing of, and nothing changes.
    void time_write(size_t at, int thread, bool second, bool read);

    std::vector<char> bytes_, arriving_; // what copies bring
    size_t base_ = 0;
    std::vector<Place> places_;
    uint64_t epoch_ = 1;
    int shift_ = 2;

    bool asynchronous_ = false;
    size_t warps_ = 0;
    uint64_t time_ = 1;
    std::vector<Times> times_;
    std::vector<uint64_t> reads_;                   // by place and warp: when it read there last; 0: not since the place was written
    std::vector<uint64_t> known_;                   // by warp and other warp: up to when it knows what the other did
    std::vector<std::vector<uint32_t>> not_fenced_; // by thread: places that it has written
    std::map<size_t, MemoryBarrier> barriers_;
};

} // namespace polyhead::cuda_driver
#endif
