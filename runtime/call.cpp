// Fills the argv of one call, in the order that the generated entries have: a user context for devices, inputs (tensors, weights, biases,
// key lengths, scalars), then outputs. Dimensions are innermost first, as Halide counts them.
#include "call.h"

#include <cmath>
#include <cstdlib>

#include "status.h"
#include "tensor_rules.h"
#include "weight_layout.h"

namespace polyhead::runtime {
namespace {

// 16-bit floating point travels as its bits: Halide's own 16-bit types do not compile for every device, so kernels convert.
halide_type_t halide_type(int32_t dtype) noexcept {
    switch (dtype) {
    case POLYHEAD_F16:
    case POLYHEAD_BF16:
        return {halide_type_uint, 16};
    case POLYHEAD_I8:
        return {halide_type_int, 8};
    case POLYHEAD_I32:
        return {halide_type_int, 32};
    case POLYHEAD_BOOL:
        return {halide_type_uint, 1};
    default:
        return {halide_type_float, 32};
    }
}

// A dimension from 0; rules of the runtime keep both numbers within 32 bits.
void set(halide_dimension_t &dimension, int64_t extent, int64_t stride) noexcept {
    dimension.min = 0;
    dimension.extent = static_cast<int32_t>(extent);
    dimension.stride = static_cast<int32_t>(stride);
    dimension.flags = 0;
}

} // namespace

Call::Call(const polyhead_problem &given, const polyhead_args &args, const CallShape &shape, CallContext *context) noexcept
    : context_(context) {
    const polyhead_problem problem = with_defaults(given);
    if (context) {
        argv_[num_arguments_++] = &context_;
    }
    add_tensor(first_tensor_name(problem), args.query);
    if (problem.op == POLYHEAD_SDPA || (problem.op == POLYHEAD_MHA && problem.cross)) {
        add_tensor("key", args.key);
        add_tensor("value", args.value);
    }
    if (problem.op != POLYHEAD_SDPA) {
        add_weights(problem, *args.weights);
    }
    if (problem.op != POLYHEAD_LINEAR) {
        if (problem.kv_lengths) {
            add_kv_lengths(args.kv_lengths, shape);
        }
        add_scalars(problem, args);
    }
    add_tensor("out", args.out, true);
    if (problem.op != POLYHEAD_LINEAR && problem.lse) {
        add_tensor("lse", args.lse, true);
    }
}

halide_buffer_t *Call::new_buffer(const DeviceRange &range, const polyhead_device *device, int32_t dtype, int rank) noexcept {
    ranges_[num_buffers_] = range;
    on_device_[num_buffers_] = device != nullptr;
    halide_buffer_t *buffer = &buffers_[num_buffers_];
    *buffer = halide_buffer_t{};
    if (!device) { // Halide has no const buffers; inputs are only read
        buffer->host = static_cast<uint8_t *>(const_cast<void *>(range.data)) + range.first;
    }
    buffer->type = halide_type(dtype);
    buffer->dimensions = rank;
    buffer->dim = dimensions_[num_buffers_++];
    argv_[num_arguments_++] = buffer;
    return buffer;
}

void Call::add_tensor(const char *name, const polyhead_tensor &tensor, bool output) noexcept {
    DeviceRange range = range_of(name, tensor);
    range.output = output;
    halide_buffer_t *buffer = new_buffer(range, tensor.device, tensor.dtype, tensor.rank);
    int64_t dense = 1; // the stride that a dimension would have in a contiguous tensor
    for (int i = 0; i < tensor.rank; ++i) {
        const int outer = tensor.rank - 1 - i;
        const int64_t extent = tensor.shape[outer];
        // The stride of a dimension of one element is free: callers leave anything there, kernels get what contiguity asks for.
        const int64_t stride = extent > 1 ? tensor.stride[outer] : dense;
        set(buffer->dim[i], extent, stride);
        dense = std::abs(stride) * extent;
    }
}

void Call::add_kv_lengths(const polyhead_tensor &tensor, const CallShape &shape) noexcept {
    if (!absent(tensor)) {
        return add_tensor("kv_lengths", tensor);
    }
    full_length_ = static_cast<int32_t>(shape.seq_len_kv);
    full_lengths_ = num_buffers_;
    set(new_buffer({"kv_lengths", &full_length_, 0, sizeof full_length_, 0}, nullptr, POLYHEAD_I32, 1)->dim[0], shape.batch, 0);
}

void Call::add_panels(const polyhead_weights &weights, size_t offset, int64_t depth, int64_t panels) noexcept {
    constexpr int64_t panel = POLYHEAD_WEIGHT_PANEL;
    const int64_t begin = static_cast<int64_t>(offset), bytes = panels * depth * panel * dtype_bytes(weights.dtype);
    halide_buffer_t *buffer = new_buffer({"weights", weights.data, begin, begin + bytes, begin}, weights.device, weights.dtype, 3);
    set(buffer->dim[0], panel, 1);
    set(buffer->dim[1], depth, panel);
    set(buffer->dim[2], panels, panel * depth);
}

void Call::add_vector(const polyhead_weights &weights, size_t offset, int64_t extent) noexcept {
    const int64_t begin = static_cast<int64_t>(offset), bytes = extent * dtype_bytes(weights.dtype);
    set(new_buffer({"weights", weights.data, begin, begin + bytes, begin}, weights.device, weights.dtype, 1)->dim[0], extent, 1);
}

void Call::add_weights(const polyhead_problem &problem, const polyhead_weights &weights) noexcept {
    const WeightLayout layout = weight_layout(problem);
    const WeightSection sections[] = {layout.query, layout.key, layout.value, layout.out};
    for (const WeightSection &s : sections) {
        if (s.heads > 0) {
            add_panels(weights, s.weight_offset, s.depth, s.panels());
        }
    }
    if (!problem.bias) {
        return;
    }
    for (const WeightSection &s : sections) {
        if (s.heads > 0) {
            add_vector(weights, s.bias_offset, s.panels() * POLYHEAD_WEIGHT_PANEL);
        }
    }
}

void Call::add_scalars(const polyhead_problem &problem, const polyhead_args &args) noexcept {
    softmax_scale_ = args.has_softmax_scale ? args.softmax_scale : 1.0f / std::sqrt(static_cast<float>(problem.head_dim));
    argv_[num_arguments_++] = &softmax_scale_;
    if (problem.causal == POLYHEAD_NOT_CAUSAL) {
        return;
    }
    from_end_ = (args.alignment != 0 ? args.alignment : problem.causal) == POLYHEAD_BOTTOM_RIGHT;
    argv_[num_arguments_++] = &from_end_;
}

} // namespace polyhead::runtime
