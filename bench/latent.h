// Decoding with multi-head latent attention: a cache whose rows are key and, in their leading part, value.
#ifndef BENCH_LATENT_H
#define BENCH_LATENT_H

namespace bench {

// Times one step with value_in_key and with a separate value, in turns; prints the ratio, and the shares of read bandwidth and FMA peak
// that the first reaches. Returns 0 when it is never the slower one.
int print_latent(int threads, int rounds);

} // namespace bench
#endif
