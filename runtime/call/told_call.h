// Calls that are told on standard error: for a user who wants to know what ran (POLYHEAD_VERBOSE=1, contract/verbose.h).
#ifndef POLYHEAD_RUNTIME_TOLD_CALL_H
#define POLYHEAD_RUNTIME_TOLD_CALL_H

#include <polyhead/c_api.h>

namespace polyhead::runtime {

// Runs the call and writes one line: problem, shape, the variant that ran and why not those before it, or the refusal, and the time. What
// is told takes memory and time of its own.
polyhead_status run_and_tell(const polyhead_kernel *table, const polyhead_args *args,
                             polyhead_status (*run)(const polyhead_kernel *, const polyhead_args *) noexcept) noexcept;

} // namespace polyhead::runtime
#endif
