// What pages cost a decoding step, compared with a contiguous cache.
#ifndef BENCH_PAGES_H
#define BENCH_PAGES_H

namespace bench {

// Times the same keys in a contiguous cache and in shuffled pages, in turns; prints the ratios. Returns 0 when each is within its line.
int print_pages(int threads, int rounds);

} // namespace bench
#endif
