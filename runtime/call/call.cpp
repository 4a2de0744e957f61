// Fills the argv of one call, in the order that the generated entries have: the user context, inputs (tensors, weights, biases,
// optional tensors, numbers), then outputs. Dimensions are innermost first, as Halide counts them.
#include "call.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>

#include "../../contract/weight_layout.h"
#include "../rules/tensor_rules.h"
#include "../status.h"
#include "call_tensors.h"
#include "needed_keys.h"

namespace polyhead::runtime {
namespace {

ElementType type_of(int32_t dtype) noexcept {
    const DTypeRow *const row = find_dtype(dtype);
    const auto bits = static_cast<uint8_t>(row->bytes * 8);
    return {row->carrier == Carrier::real      ? ElementType::real
            : row->carrier == Carrier::integer ? ElementType::signed_integer
                                               : ElementType::unsigned_integer,
            bits, 1};
}

// A dimension from 0; rules of the runtime keep both numbers within 32 bits.
void set(KernelDimension &dimension, int64_t extent, int64_t stride) noexcept {
    dimension.min = 0;
    dimension.extent = static_cast<int32_t>(extent);
    dimension.stride = static_cast<int32_t>(stride);
    dimension.flags = 0;
}

// Where numbers_ has a number: its place in the table, found while this file is compiled.
constexpr size_t place_of(std::string_view name) {
    size_t i = 0;
    while (name != numbers[i].name) {
        ++i;
    }
    return i;
}
constexpr size_t softmax_scale = place_of("softmax_scale"), from_end = place_of("from_end"), window_left = place_of("window_left"),
                 window_right = place_of("window_right"), step_q = place_of("position_step_q"), step_kv = place_of("position_step_kv"),
                 dropout_offset = place_of("dropout_offset"), seed_low = place_of("seed_low"), seed_high = place_of("seed_high");
constexpr size_t numbers_given() {
    size_t count = 0;
    for (const NumberRow &row : numbers) {
        count += row.given != nullptr ? 1 : 0;
    }
    return count;
}
static_assert(num_numbers == 9 + numbers_given(), "add_numbers sets each of them");

template <typename T> uint32_t bits_of(T value) noexcept {
    static_assert(sizeof(T) == sizeof(uint32_t), "one word");
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

uint32_t neutral_bits(Neutral neutral, const CallShape &shape) noexcept {
    switch (neutral) {
    case Neutral::one:
        return bits_of(1.0f);
    case Neutral::minus_infinity:
        return bits_of(-std::numeric_limits<float>::infinity());
    case Neutral::all_true:
        return 0x01010101;
    case Neutral::key_length:
        return static_cast<uint32_t>(shape.seq_len_kv);
    default:
        return 0;
    }
}

} // namespace

size_t Call::bytes_of(const KernelTable &kernel) noexcept {
    static_assert(sizeof(Call) % alignof(Slot) == 0, "slots lie behind the object");
    int buffers = kernel.num_declarations + kernel.num_gradients;
    for (const TensorRow &row : kernel.tensors) {
        buffers += row.place != Place::host ? 1 : 0;
    }
    for (const WeightRow &row : weight_rows) {
        buffers += takes(kernel.problem, row) ? 2 : 0; // and its bias
    }
    return bytes_with(buffers);
}

Call::Call(const KernelTable &kernel, const polyhead_args &args, const CallShape &shape, CallContext *context) noexcept
    : context_(context) {
    const polyhead_problem problem = with_heads(kernel.problem, shape.num_heads, shape.num_kv_heads);
    argv_[num_arguments_++] = &context_;
    const auto add_rows = [&](const TensorSet &rows) {
        for (const TensorRow &row : kernel.tensors &rows) {
            add_row(row, problem, args, shape);
        }
    };
    add_rows(operand_rows);
    if (has_weights(problem)) {
        add_weights(problem, *args.weights);
    }
    add_rows(option_rows);
    add_expression_tensors(kernel, problem, args, shape);
    add_numbers(problem, args);
    add_rows(result_rows);
    for (int32_t i = 0; i < kernel.num_gradients; ++i) {
        add_tensor(kernel.gradient_name(kernel.gradients[i]), args.expression_gradients[i], true);
        last().source.expression_gradient = i;
    }
}

// Arguments that the entry gets lie in this object: their places are those of the other one.
Call::Call(const Call &planned, const polyhead_problem &problem, const polyhead_args &args, CallContext *context) noexcept
    : context_(context), num_buffers_(planned.num_buffers_), num_arguments_(planned.num_arguments_) {
    for (int i = 0; i < num_buffers_; ++i) {
        const Source &source = planned.slot(i).source;
        slot(i).buffer = planned.slot(i).buffer;
        if (source.weights) {
            slot(i).buffer.host = static_cast<uint8_t *>(const_cast<void *>(args.weights->data)) + planned.slot(i).range.first;
        } else if (source.tensor || source.expression_tensor >= 0 || source.expression_gradient >= 0) {
            const polyhead_tensor &tensor = source.tensor                   ? args.*source.tensor
                                            : source.expression_tensor >= 0 ? args.expression_tensors[source.expression_tensor]
                                                                            : args.expression_gradients[source.expression_gradient];
            slot(i).buffer.host = reinterpret_cast<uint8_t *>(elements(tensor, dtype_bytes(tensor.dtype)));
        }
    }
    set_numbers(problem, args);
    const auto *const from = reinterpret_cast<const char *>(&planned);
    for (int i = 0; i < num_arguments_; ++i) {
        argv_[i] = reinterpret_cast<char *>(this) + (static_cast<const char *>(planned.argv_[i]) - from);
    }
}

KernelBuffer *Call::new_buffer(const DeviceRange &range, const polyhead_device *device, int32_t dtype, int rank) noexcept {
    Slot *const made = new (&slot(num_buffers_++)) Slot{{}, {}, range, nullptr, {nullptr, -1, -1, false}, device != nullptr};
    KernelBuffer *buffer = &made->buffer;
    if (!device) { // Halide has no const buffers; inputs are only read
        buffer->host = static_cast<uint8_t *>(const_cast<void *>(range.data)) + range.first;
    }
    buffer->type = type_of(dtype);
    buffer->dimensions = rank;
    buffer->dim = made->dimensions;
    argv_[num_arguments_++] = buffer;
    return buffer;
}

void Call::add_tensor(const char *name, const polyhead_tensor &tensor, bool output) noexcept {
    DeviceRange range = range_of(name, tensor);
    range.output = output;
    KernelBuffer *buffer = new_buffer(range, tensor.device, tensor.dtype, tensor.rank);
    int64_t dense = 1; // the stride that a dimension would have in a contiguous tensor
    for (int i = 0; i < tensor.rank; ++i) {
        const int outer = tensor.rank - 1 - i;
        const int64_t extent = tensor.shape[outer];
        // The stride of a dimension of one element is free: callers may leave any number; kernels get that of a contiguous tensor.
        const int64_t stride = extent > 1 ? tensor.stride[outer] : dense;
        set(buffer->dim[i], extent, stride);
        dense = std::abs(stride) * extent;
    }
}

// Keys as if they ended behind those that the kernel is shown; with pages the page table ends there.
void Call::add_row(const TensorRow &row, const polyhead_problem &problem, const polyhead_args &args, const CallShape &shape) noexcept {
    if (row.place == Place::option) {
        return add_option(row, problem, args, shape);
    }
    polyhead_tensor tensor = args.*row.tensor;
    const bool of_keys = row.updated || row.place == Place::operand;
    for (int i = 0; i < row.rank; ++i) {
        if (of_keys && counted(row.extents[i], problem) == POLYHEAD_EXTENT_KV) {
            tensor.shape[i] = shape.needed_keys;
        }
    }
    if (row.least_rank > 0) { // dimensions that the caller left out have one element
        for (; tensor.rank < row.rank; ++tensor.rank) {
            std::copy_backward(tensor.shape, tensor.shape + tensor.rank, tensor.shape + tensor.rank + 1);
            std::copy_backward(tensor.stride, tensor.stride + tensor.rank, tensor.stride + tensor.rank + 1);
            tensor.shape[0] = 1;
        }
    }
    add_tensor(said_of(row), tensor, row.place == Place::result);
    last().source.tensor = row.tensor;
    last().range.input = row.place == Place::operand || row.updated;
}

// A tensor as one of the given rank and extents: dimensions that it lacks, or has one element in, are spread by stride 0.
void Call::add_spread(const char *name, const polyhead_tensor &tensor, int32_t rank, const int64_t *extents) noexcept {
    polyhead_tensor full = tensor;
    full.rank = rank;
    for (int i = 0; i < rank; ++i) {
        const int given = i - (rank - tensor.rank);
        const int64_t extent = extents[i] != any_extent ? extents[i] : tensor.shape[given];
        full.stride[i] = given < 0 || tensor.shape[given] < extent ? 0 : tensor.stride[given];
        full.shape[i] = extent;
    }
    add_tensor(name, full);
}

// With one neutral element in place of a tensor that the call leaves out.
void Call::add_option(const TensorRow &row, const polyhead_problem &problem, const polyhead_args &args, const CallShape &shape) noexcept {
    CallShape shown = shape;
    shown.seq_len_kv = shape.needed_keys;
    int64_t extents[POLYHEAD_MAX_RANK];
    full_extents(row, problem, shown, extents);
    const polyhead_tensor &tensor = args.*row.tensor;
    if (!absent(tensor)) {
        add_spread(row.name, tensor, row.rank, extents);
        last().source.tensor = row.tensor;
        return;
    }
    uint32_t *const bits = &neutral_bits_[num_neutral_++];
    *bits = neutral_bits(row.neutral, shown);
    add_spread(row.name, {bits, row.dtype(problem), 1, {1}, {1}, nullptr, 0}, row.rank, extents);
    last().neutral = bits;
}

void Call::add_expression_tensors(const KernelTable &kernel, const polyhead_problem &problem, const polyhead_args &args,
                                  const CallShape &shape) noexcept {
    for (int32_t i = 0; i < kernel.num_declarations; ++i) {
        const polyhead_declaration &declared = kernel.declarations[i];
        int64_t extents[POLYHEAD_MAX_RANK] = {1}; // of one number
        for (int d = 0; d < declared.rank; ++d) {
            extents[d] = extent_of(declared.extents[d], problem, shape);
        }
        add_spread(declared.name, args.expression_tensors[i], std::max(declared.rank, 1), extents);
        last().source.expression_tensor = i;
    }
}

void Call::add_panels(const polyhead_weights &weights, const WeightSection &section) noexcept {
    const int64_t panels = section.panels(), elements = section.panel_elements(), row = POLYHEAD_WEIGHT_PANEL * section.pair;
    const int64_t begin = static_cast<int64_t>(section.weight_offset), bytes = panels * elements * dtype_bytes(weights.dtype);
    KernelBuffer *buffer =
        new_buffer({"weights", weights.data, begin, begin + bytes, begin, false, false}, weights.device, weights.dtype, 3);
    last().source.weights = true;
    set(buffer->dim[0], row, 1);
    set(buffer->dim[1], section.words(), row);
    set(buffer->dim[2], panels, elements);
}

void Call::add_bias(const polyhead_weights &weights, size_t offset, int64_t extent) noexcept {
    const int64_t begin = static_cast<int64_t>(offset), bytes = extent * static_cast<int64_t>(bias_element_bytes);
    set(new_buffer({"weights", weights.data, begin, begin + bytes, begin, false, false}, weights.device, POLYHEAD_F32, 1)->dim[0], extent,
        1);
    last().source.weights = true;
}

void Call::add_weights(const polyhead_problem &problem, const polyhead_weights &weights) noexcept {
    const WeightLayout layout = weight_layout(problem);
    for (const WeightRow &row : weight_rows) {
        if (takes(problem, row)) {
            add_panels(weights, layout.*row.section);
        }
    }
    for (const WeightRow &row : weight_rows) {
        const WeightSection &section = layout.*row.section;
        if (problem.bias && takes(problem, row)) {
            add_bias(weights, section.bias_offset, section.panels() * POLYHEAD_WEIGHT_PANEL);
        }
    }
}

void Call::set_numbers(const polyhead_problem &problem, const polyhead_args &args) noexcept {
    numbers_[softmax_scale].real = args.has_softmax_scale ? args.softmax_scale : 1.0f / std::sqrt(static_cast<float>(problem.head_dim));
    numbers_[from_end].whole = counts_from_end(problem, args);
    numbers_[window_left].whole = window_left_of(args);
    numbers_[window_right].whole = window_right_of(problem, args);
    numbers_[step_q].whole = absent(args.positions_q);
    numbers_[step_kv].whole = absent(args.positions_kv);
    numbers_[dropout_offset].whole = static_cast<int32_t>(args.dropout_offset);
    numbers_[seed_low].whole = static_cast<int32_t>(args.dropout_seed);
    numbers_[seed_high].whole = static_cast<int32_t>(args.dropout_seed >> 32);
    for (size_t i = 0; i < num_numbers; ++i) {
        if (numbers[i].given) {
            numbers_[i].real = args.*numbers[i].given;
        }
    }
}

void Call::add_numbers(const polyhead_problem &problem, const polyhead_args &args) noexcept {
    set_numbers(problem, args);
    for (size_t i = 0; i < num_numbers; ++i) {
        if (takes(problem, numbers[i])) {
            argv_[num_arguments_++] = &numbers_[i];
        }
    }
}

} // namespace polyhead::runtime
