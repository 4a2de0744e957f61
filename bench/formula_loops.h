// What decoding costs at least on one core: loops that only load, convert and multiply, over memory that lies in the L1 cache.
#ifndef BENCH_FORMULA_LOOPS_H
#define BENCH_FORMULA_LOOPS_H

#include <cstdint>

namespace roof {

// GB/s of stored keys or values of this type when each vector is loaded, converted to what is multiplied, and used for four rows of
// queries. The instructions are the best that polyhead_cpu_features() has. 0: there is no loop for this machine.
double formula_gbs(int32_t dtype, double seconds);

} // namespace roof
#endif
