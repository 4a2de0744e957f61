// The argv of one call: Halide buffers and scalars, all on the caller's stack.
#ifndef POLYHEAD_RUNTIME_CALL_H
#define POLYHEAD_RUNTIME_CALL_H

#include <HalideRuntime.h>

#include <polyhead/c_api.h>

#include "validate.h"

namespace polyhead::runtime {

class Call {
public:
    // Of checked arguments whose tensors all have elements. They must outlive this object.
    Call(const polyhead_problem &problem, const polyhead_args &args, const CallShape &shape) noexcept;
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;

    int run(const polyhead_variant &variant) noexcept {
        return variant.entry ? variant.entry(argv_) : variant.call(variant.context, argv_);
    }

private:
    static constexpr int most_buffers = 16, most_arguments = 18;

    halide_buffer_t *new_buffer(const void *data, int32_t dtype, int rank) noexcept;
    void add_tensor(const polyhead_tensor &tensor) noexcept;
    void add_kv_lengths(const polyhead_tensor &tensor, const CallShape &shape) noexcept;
    void add_weights(const polyhead_problem &problem, const polyhead_weights &weights) noexcept;
    void add_scalars(const polyhead_problem &problem, const polyhead_args &args) noexcept;
    void add_panels(const void *data, int64_t depth, int64_t panels) noexcept;
    void add_vector(const void *data, int64_t extent) noexcept;

    halide_buffer_t buffers_[most_buffers];
    halide_dimension_t dimensions_[most_buffers][POLYHEAD_MAX_RANK];
    void *argv_[most_arguments];
    int num_buffers_ = 0, num_arguments_ = 0;
    int32_t full_length_ = 0, from_end_ = 0;
    float softmax_scale_ = 0;
};

} // namespace polyhead::runtime
#endif
