// Chooses a variant: the first of the table that may run. It depends on the device of the call, CPU features, query length and, for
// variants that require it, the alignment of query, key and value. Of two with the same results, the number of blocks chooses.
#ifndef POLYHEAD_RUNTIME_DISPATCH_H
#define POLYHEAD_RUNTIME_DISPATCH_H

#include <polyhead/c_api.h>

#include "../rules/validate.h"
#include "kernel_table.h"

namespace polyhead::runtime {

class Text;

// True when this machine, and the device if one is given, has what the variant needs; without a device only CPU variants run.
bool runs_on(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_device *device) noexcept;

// True when a variant of the kernel does.
bool any_runs_on(const KernelTable &kernel, const polyhead_device *device) noexcept;

// True when the variant may serve this call. Otherwise, and where the call has too many blocks for it to be the better one, why_not, if
// given, gets half a sentence ("needs avx512_skylake").
bool eligible(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args, const CallShape &shape,
              Text *why_not) noexcept;

// The first eligible variant, or null and a status that says what is missing.
const polyhead_variant *select_variant(const KernelTable &kernel, const polyhead_args &args, const CallShape &shape,
                                       polyhead_status *status) noexcept;

} // namespace polyhead::runtime
#endif
