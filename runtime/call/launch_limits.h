// How many blocks a device starts at once; a larger batch, or more rows of a linear layer, is launched in parts.
#ifndef POLYHEAD_RUNTIME_LAUNCH_LIMITS_H
#define POLYHEAD_RUNTIME_LAUNCH_LIMITS_H

#include <cstdint>

#include <polyhead/c_api.h>

#include "../rules/validate.h"
#include "kernel_table.h"

namespace polyhead::runtime {

// Batch rows (linear: rows) of one launch. Blocks count batch rows, or batch rows and heads, in a dimension of the grid that is short.
int64_t rows_of_launch(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_device &device,
                       const CallShape &shape) noexcept;

// Refuses lengths that no launch takes, however the batch is divided.
bool check_launch(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args, const CallShape &shape,
                  polyhead_status *status) noexcept;

} // namespace polyhead::runtime
#endif
