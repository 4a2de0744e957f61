// The argv of one call: buffers and numbers, all on the caller's stack.
#ifndef POLYHEAD_RUNTIME_CALL_H
#define POLYHEAD_RUNTIME_CALL_H

#include <polyhead/c_api.h>

#include "../../contract/tensors.h"
#include "../../contract/weight_layout.h"
#include "../contract.h"
#include "../kernel_interface.h"
#include "../rules/validate.h"
#include "call_context.h"
#include "device.h"
#include "kernel_table.h"

namespace polyhead::runtime {

class Call {
public:
    // Of checked arguments whose tensors all have elements. They must outlive this object, and so must the user context, which comes
    // first; a buffer whose memory lies on a device has no host pointer yet.
    Call(const KernelTable &kernel, const polyhead_args &args, const CallShape &shape, CallContext *context) noexcept;
    // The same call with other addresses and numbers. `planned` must live as long: it keeps what does not change.
    Call(const Call &planned, const polyhead_problem &problem, const polyhead_args &args, CallContext *context) noexcept;
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;

    int run(const polyhead_variant &variant) noexcept { return variant.entry(argv_); }

    int num_buffers() const noexcept { return num_buffers_; }
    KernelBuffer &buffer(int i) noexcept { return buffers_[i]; }
    // The memory of buffer i as the arguments give it. For a host buffer its bytes begin at its first element.
    const DeviceRange &range(int i) const noexcept { return ranges_[i]; }
    bool on_device(int i) const noexcept { return on_device_[i]; }
    // For a buffer in place of a tensor that the call left out: the bits of its one element. Else null.
    const uint32_t *neutral(int i) const noexcept { return neutral_[i]; }

    // A context, every tensor, and every number.
    static constexpr int most_buffers = static_cast<int>(most_entry_tensors()) + 2 * most_expression_tensors;
    static constexpr int most_arguments = 1 + most_buffers + static_cast<int>(num_numbers);

private:
    KernelBuffer *new_buffer(const DeviceRange &range, const polyhead_device *device, int32_t dtype, int rank) noexcept;
    void add_tensor(const char *name, const polyhead_tensor &tensor, bool output = false) noexcept;
    void add_row(const TensorRow &row, const polyhead_problem &problem, const polyhead_args &args, const CallShape &shape) noexcept;
    void add_option(const TensorRow &row, const polyhead_problem &problem, const polyhead_args &args, const CallShape &shape) noexcept;
    void add_spread(const char *name, const polyhead_tensor &tensor, int32_t rank, const int64_t *extents) noexcept;
    void add_expression_tensors(const KernelTable &kernel, const polyhead_problem &problem, const polyhead_args &args,
                                const CallShape &shape) noexcept;
    void add_weights(const polyhead_problem &problem, const polyhead_weights &weights) noexcept;
    void add_numbers(const polyhead_problem &problem, const polyhead_args &args) noexcept;
    void set_numbers(const polyhead_problem &problem, const polyhead_args &args) noexcept;
    void add_panels(const polyhead_weights &weights, const WeightSection &section) noexcept;
    void add_bias(const polyhead_weights &weights, size_t offset, int64_t extent) noexcept;

    // Where the address of a buffer comes from: a tensor of the arguments or of its expression, the weights, or a neutral element.
    struct Source {
        polyhead_tensor polyhead_args::*tensor; // null: another
        int32_t expression_tensor;              // -1: another
        int32_t expression_gradient;            // the same
        bool weights;
    };

    union Number {
        float real;
        int32_t whole;
    };

    struct Dimensions {
        KernelDimension of[POLYHEAD_MAX_RANK];
    };

    // Nothing is set of those that a call does not use.
    KernelBuffer buffers_[most_buffers];
    Dimensions dimensions_[most_buffers];
    DeviceRange ranges_[most_buffers];
    bool on_device_[most_buffers];
    const uint32_t *neutral_[most_buffers];
    Source sources_[most_buffers];
    void *argv_[most_arguments];
    void *context_;
    int num_buffers_ = 0, num_arguments_ = 0;
    uint32_t neutral_bits_[num_tensors];
    int num_neutral_ = 0;
    Number numbers_[num_numbers];
};

} // namespace polyhead::runtime
#endif
