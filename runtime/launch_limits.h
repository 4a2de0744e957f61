// How many blocks a device starts at once, and calls in parts where a batch or the rows of a linear layer are more than that.
#ifndef POLYHEAD_RUNTIME_LAUNCH_LIMITS_H
#define POLYHEAD_RUNTIME_LAUNCH_LIMITS_H

#include <cstdint>

#include <polyhead/c_api.h>

#include "optional_tensors.h"
#include "validate.h"

namespace polyhead::runtime {

// Batch rows (linear: rows) of one launch. Blocks count batch rows, or batch rows and heads, in a dimension of the grid that is short.
int64_t rows_of_launch(const polyhead_kernel &kernel, const polyhead_variant &variant, const polyhead_device &device,
                       const CallShape &shape) noexcept;

// Refuses lengths that no launch takes, however the batch is divided.
bool check_launch(const polyhead_kernel &kernel, const polyhead_variant &variant, const polyhead_args &args, const CallShape &shape,
                  polyhead_status *status) noexcept;

// The arguments of some batch rows (linear: rows) of a checked call.
class PartOfCall {
public:
    PartOfCall(const polyhead_kernel &kernel, const polyhead_args &args, int64_t first, int64_t count) noexcept;
    PartOfCall(const PartOfCall &) = delete;
    PartOfCall &operator=(const PartOfCall &) = delete;
    const polyhead_args &args() const noexcept { return args_; }

private:
    polyhead_args args_;
    polyhead_tensor expression_tensors_[most_expression_tensors];
};

} // namespace polyhead::runtime
#endif
