// How the capacity of a cache changes the time of a decoding step, which should depend only on the valid keys.
#ifndef BENCH_CAPACITY_H
#define BENCH_CAPACITY_H

namespace bench {

// Times the same valid keys in a small and in a large cache, in turns; prints the ratios. Returns 0 when each is within its line.
int print_capacities(int threads, int rounds);

} // namespace bench
#endif
