// Memory that one call of a kernel holds at once.
#ifndef POLYHEAD_RUNTIME_SCRATCH_BYTES_H
#define POLYHEAD_RUNTIME_SCRATCH_BYTES_H

#include <polyhead/c_api.h>

#include "validate.h"

namespace polyhead::runtime {

// Bytes that the variant asks the allocator for with so many threads, never less; INT64_MAX where they do not fit 64 bits. On a device:
// what it keeps there between its stages.
// What each thread takes of it on a CPU.
int64_t thread_scratch_bytes(const polyhead_variant &variant, const CallShape &shape) noexcept;
int64_t scratch_bytes(const polyhead_problem &problem, const polyhead_variant &variant, const polyhead_args &args, const CallShape &shape,
                      int threads) noexcept;

} // namespace polyhead::runtime
#endif
