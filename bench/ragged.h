// How fast calls with packed tokens are, compared with calls of equal lengths.
#ifndef BENCH_RAGGED_H
#define BENCH_RAGGED_H

namespace bench {

// Times sequences of 1 to 700 tokens against a batch of equal lengths, and prefill with decoding in one call against two calls, in turns;
// prints the ratios. Returns 0 when each is within its line.
int print_ragged(int threads, int rounds);

} // namespace bench
#endif
