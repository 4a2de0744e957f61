// The argv of one call: buffers and numbers, all on the caller's stack. A call takes as much of it as its kernel has tensors.
#ifndef POLYHEAD_RUNTIME_CALL_H
#define POLYHEAD_RUNTIME_CALL_H

#include <cstddef>
#include <new>

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
    // In so many bytes of memory at `room`, aligned to 16. Of checked arguments whose tensors all have elements. They must outlive this
    // object, and so must the user context, which comes first; a buffer whose memory lies on a device has no host pointer yet.
    static size_t bytes_of(const KernelTable &kernel) noexcept;
    static Call *make(void *room, const KernelTable &kernel, const polyhead_args &args, const CallShape &shape,
                      CallContext *context) noexcept {
        return new (room) Call(kernel, args, shape, context);
    }
    // The same call with other addresses and numbers. It must live as long: it keeps what does not change.
    size_t bytes() const noexcept { return bytes_with(num_buffers_); }
    static constexpr size_t most_bytes() noexcept;
    Call *copy(void *room, const polyhead_problem &problem, const polyhead_args &args, CallContext *context) const noexcept {
        return new (room) Call(*this, problem, args, context);
    }
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;

    int run(const polyhead_variant &variant) noexcept { return variant.entry(argv_); }

    int num_buffers() const noexcept { return num_buffers_; }
    KernelBuffer &buffer(int i) noexcept { return slot(i).buffer; }
    // The memory of buffer i as the arguments give it. For a host buffer its bytes begin at its first element.
    const DeviceRange &range(int i) const noexcept { return slot(i).range; }
    bool on_device(int i) const noexcept { return slot(i).on_device; }
    // For a buffer in place of a tensor that the call left out: the bits of its one element. Else null.
    const uint32_t *neutral(int i) const noexcept { return slot(i).neutral; }

    // Of any kernel: a context, every tensor, and every number. Gradients run on no device.
    static constexpr int most_buffers = static_cast<int>(most_entry_tensors()) + 2 * most_expression_tensors;
    static constexpr int most_arguments = 1 + most_buffers + static_cast<int>(num_numbers);

    static constexpr int most_device_buffers = static_cast<int>(most_entry_tensors(~ops::backward)) + most_expression_tensors;

private:
    Call(const KernelTable &kernel, const polyhead_args &args, const CallShape &shape, CallContext *context) noexcept;
    Call(const Call &planned, const polyhead_problem &problem, const polyhead_args &args, CallContext *context) noexcept;
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

    // One of them for each buffer lies behind the object.
    struct Slot {
        KernelBuffer buffer;
        KernelDimension dimensions[POLYHEAD_MAX_RANK];
        DeviceRange range;
        const uint32_t *neutral;
        Source source;
        bool on_device;
    };
    Slot &slot(int i) noexcept { return reinterpret_cast<Slot *>(this + 1)[i]; }
    const Slot &slot(int i) const noexcept { return reinterpret_cast<const Slot *>(this + 1)[i]; }
    Slot &last() noexcept { return slot(num_buffers_ - 1); }
    static size_t bytes_with(int buffers) noexcept { return sizeof(Call) + static_cast<size_t>(buffers) * sizeof(Slot); }

    void *argv_[most_arguments]; // nothing is set of those that a call does not use
    void *context_;
    int num_buffers_ = 0, num_arguments_ = 0;
    uint32_t neutral_bits_[num_tensors];
    int num_neutral_ = 0;
    Number numbers_[num_numbers];
};

constexpr size_t Call::most_bytes() noexcept {
    return sizeof(Call) + most_buffers * sizeof(Slot);
}

} // namespace polyhead::runtime
#endif
