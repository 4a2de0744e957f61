// The table of promised speeds: % of the FMA peak, growth with threads, free lengths against fixed ones.
#ifndef BENCH_RATIO_H
#define BENCH_RATIO_H

namespace bench {

// Measures every speed line on one thread and on `threads`; prints the table. Returns 0 when all promises hold.
int print_ratios(int threads, int rounds);

} // namespace bench
#endif
