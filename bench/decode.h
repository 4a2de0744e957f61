// How fast a decoding step reads its cache, compared with a plain read of the same memory.
#ifndef BENCH_DECODE_H
#define BENCH_DECODE_H

namespace bench {

// Times steps and plain reads in turns, from memory; prints the shares. Returns 0 when each reaches its line.
int print_decode(int threads, int rounds);

} // namespace bench
#endif
