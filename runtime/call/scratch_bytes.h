// Memory that one call of a kernel holds at once, and how much of a call fits into the pieces that kernels can index.
#ifndef POLYHEAD_RUNTIME_SCRATCH_BYTES_H
#define POLYHEAD_RUNTIME_SCRATCH_BYTES_H

#include <polyhead/c_api.h>

#include "../rules/validate.h"

namespace polyhead::runtime {

// scratch_bytes(): an upper bound of the bytes that the variant allocates with so many threads; INT64_MAX where they do not fit 64 bits. On
// a device: the bytes that it keeps there between its stages. thread_scratch_bytes(): the part that each thread takes on a CPU.
int64_t thread_scratch_bytes(const polyhead_variant &variant, const CallShape &shape) noexcept;
int64_t scratch_bytes(const polyhead_problem &problem, const polyhead_variant &variant, const polyhead_args &args, const CallShape &shape,
                      int threads) noexcept;

// Each piece of memory between the stages of a kernel has fewer than 2^31 bytes, because kernels count them in 32 bits. How much of a call
// takes no larger piece:
struct Fit {
    int64_t rows;    // batch rows (linear: rows), at most those of the call; 0: not even one
    int64_t queries; // of one batch row, at most those of the call; 0: not even one
    int64_t bytes;   // the largest piece of one batch row
};
// True when the whole call does.
bool fits(const Fit &fit, const polyhead_problem &problem, const CallShape &shape) noexcept;
Fit fit_of(const polyhead_problem &problem, const polyhead_variant &variant, const polyhead_args &args, const CallShape &shape) noexcept;

} // namespace polyhead::runtime
#endif
