// Kernels of 16-bit storage beside those of f32.
#ifndef BENCH_STORAGE_H
#define BENCH_STORAGE_H

namespace bench {

// Times the speed lines in f32, bf16 and f16 in turns; prints the time of f32 as a multiple of the time of each. Returns 0 when none is
// slower than 1 / 0.92 of f32.
int print_storage(int threads, int rounds);

} // namespace bench
#endif
