// How many keys a kernel has to be shown.
#ifndef POLYHEAD_RUNTIME_NEEDED_KEYS_H
#define POLYHEAD_RUNTIME_NEEDED_KEYS_H

#include <polyhead/c_api.h>

#include "../rules/validate.h"
#include "kernel_table.h"

namespace polyhead::runtime {

// Keys of the call that some batch row may see, at least 1: the longest key length, where these lie on the host and nothing is written
// behind it; without lengths as many as there are queries, where no query sees a key after its own position (causal, top-left). A kernel
// is given no more, so that it costs what is valid and not what a cache could hold. With pages: whole pages. The call was
// checked and has keys.
int64_t needed_keys(const KernelTable &kernel, const polyhead_args &args, const CallShape &shape) noexcept;

// Keys that the windows of all queries of a batch row reach together, of as many.
int64_t keys_in_windows(const polyhead_problem &problem, const polyhead_args &args, const CallShape &shape) noexcept;

// A side of the window as kernels take it, from 0 to window_unbounded.
int32_t window_left_of(const polyhead_args &args) noexcept;
int32_t window_right_of(const polyhead_problem &problem, const polyhead_args &args) noexcept;

} // namespace polyhead::runtime
#endif
