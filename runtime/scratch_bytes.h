// Memory that one call of a kernel holds at once.
#ifndef POLYHEAD_RUNTIME_SCRATCH_BYTES_H
#define POLYHEAD_RUNTIME_SCRATCH_BYTES_H

#include <polyhead/c_api.h>

#include "validate.h"

namespace polyhead::runtime {

// scratch_bytes(): an upper bound of the bytes that the variant allocates with so many threads; INT64_MAX where they do not fit 64 bits. On
// a device: the bytes that it keeps there between its stages. thread_scratch_bytes(): the part that each thread takes on a CPU.
int64_t thread_scratch_bytes(const polyhead_variant &variant, const CallShape &shape) noexcept;
int64_t scratch_bytes(const polyhead_problem &problem, const polyhead_variant &variant, const polyhead_args &args, const CallShape &shape,
                      int threads) noexcept;

} // namespace polyhead::runtime
#endif
