// What the capacity of a cache costs a decoding step, which should pay for the valid keys alone.
#ifndef BENCH_CAPACITY_H
#define BENCH_CAPACITY_H

namespace bench {

// Times the same valid keys in a small and in a large cache, in turns; prints the ratios. Returns 0 when each is within its line.
int print_capacities(int threads, int rounds);

} // namespace bench
#endif
