// The roofs of this machine, measured: multiply-add peaks and read bandwidth, by any number of threads, in slices as short as wanted.
#ifndef POLYHEAD_INSTRUMENTS_ROOF_H
#define POLYHEAD_INSTRUMENTS_ROOF_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "workers.h"

namespace roof {

// What a peak is made of: multiply-adds of f32, dot products of pairs of bf16, or products of tiles of bf16.
enum class Peak { fma, bf16_pairs, bf16_tiles };
// The peak of kernels of this storage type: for bf16 of tiles, else of pairs, where polyhead_cpu_features() has them.
Peak peak_of(int32_t dtype);
// The widest instruction that polyhead_cpu_features() has: "AVX-512 FMA", "AVX2 FMA", "SSE multiply and add", "128-bit vectors"; or
// "AVX-512 BF16", "AMX BF16".
const char *peak_name(Peak peak = Peak::fma);
// Returns when the helpers of the last call sleep: they look for work for 1 ms before, and what is measured beside them is too low.
void until_helpers_sleep();
// GFLOP/s of all workers in independent multiply-adds, over about so many seconds.
double peak_gflops(Workers &workers, double seconds, Peak peak = Peak::fma);
// GB/s that the workers read from memory beyond the caches (256 MiB, 2 MiB pages where the system gives them).
double read_gbs(Workers &workers);
// Seconds of a plain read of some blocks of memory, of each of which each thread reads an equal part. While it reads a short one it asks
// for its part of the next, if that is as long.
struct Block {
    const void *data;
    size_t bytes;
};
double read_seconds(Workers &workers, const std::vector<Block> &blocks);
// GB/s that the workers write there while they copy; what they read is not counted.
double copy_gbs(Workers &workers);

// Median and quartiles.
struct Spread {
    double median = 0, q1 = 0, q3 = 0;
    double iqr() const { return q3 - q1; }
};
Spread spread(std::vector<double> values);

// One round: calls and peak slices of the same length in turn, so that whatever disturbs the machine disturbs all of them alike.
struct Round {
    std::vector<double> seconds; // median time of each call
    std::vector<double> least;   // shortest time of each call
    double peak_gflops = 0;      // median of the peak slices
    double others_busy = 0;      // cores that other programs kept busy meanwhile; above 0.1 the round says little
};
// repeated: each call is made twice and the second counts, which finds its tensors in the caches.
enum class Calls { once, repeated };
// At least `min_times` turns, and `min_seconds` of every call.
Round measure_round(Workers &workers, const std::vector<std::function<void()>> &calls, double min_seconds, int min_times = 5,
                    Peak peak = Peak::fma, Calls which = Calls::once);

} // namespace roof
#endif
