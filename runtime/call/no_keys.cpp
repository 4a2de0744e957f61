// The answer without pairs of a query and a key: attention is 0 in every row and lse is -inf, so a layer gives the bias of its output
// projection; gradients are 0, but that of this bias.
// It is written here and not by kernels, because Halide refuses an input without elements even if its loops run 0 times.
#include "no_keys.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "../../contract/tensors.h"
#include "../../contract/weight_layout.h"
#include "../memory/stored.h"
#include "../rules/tensor_rules.h"
#include "../status.h"

namespace polyhead::runtime {
namespace {

constexpr int64_t most_chunk_elements = 1 << 16;

// Number of elements that follow each other in memory: the innermost dimension, and those outside of it as long as they continue it. A
// dimension without elements, whose stride means nothing, leaves none.
struct Chunk {
    int dimensions = 0; // outer ones that are left
    int64_t elements = 1;
};

Chunk chunk_of(const polyhead_tensor &t) noexcept {
    Chunk chunk{t.rank, 1};
    while (chunk.dimensions > 0) {
        const int i = chunk.dimensions - 1;
        const bool continues = t.shape[i] <= 1 || t.stride[i] == chunk.elements;
        if (!continues || (i < t.rank - 1 && chunk.elements * t.shape[i] > most_chunk_elements)) {
            break;
        }
        chunk.elements *= t.shape[i];
        --chunk.dimensions;
    }
    return chunk;
}

// Calls write(element offset) for the first element of every chunk.
template <typename Write>
void for_each_chunk(const polyhead_tensor &t, const Chunk &chunk, int dimension, int64_t offset, const Write &write) noexcept {
    if (dimension >= std::min(chunk.dimensions, POLYHEAD_MAX_RANK)) {
        return write(offset);
    }
    for (int64_t i = 0; i < t.shape[dimension]; ++i) {
        for_each_chunk(t, chunk, dimension + 1, offset + i * t.stride[dimension], write);
    }
}

// Bytes of what one chunk is written from.
size_t source_bytes(const polyhead_tensor &t) noexcept {
    return static_cast<size_t>(chunk_of(t).elements * dtype_bytes(t.dtype));
}

// Fills the tensor with rows that are all alike; source has room for one chunk.
void fill(const polyhead_tensor &t, const void *row, int64_t row_elements, char *source, polyhead_device *device,
          polyhead_status *status) noexcept {
    const Chunk chunk = chunk_of(t);
    if (chunk.elements == 0) { // nor an address, maybe
        return;
    }
    const int64_t bytes = dtype_bytes(t.dtype);
    const size_t row_bytes = static_cast<size_t>(row_elements * bytes), chunk_bytes = source_bytes(t);
    for (size_t at = 0; at < chunk_bytes; at += row_bytes) {
        std::memcpy(source + at, row, row_bytes);
    }
    for_each_chunk(t, chunk, 0, t.offset, [&](int64_t offset) {
        if (!t.device) {
            std::memcpy(static_cast<char *>(t.data) + offset * bytes, source, chunk_bytes);
        } else if (status->code == POLYHEAD_OK) {
            *status = device->copy_to_device(source, chunk_bytes, t.data, static_cast<size_t>(offset * bytes));
        }
    });
}

bool row_of_zeros(char *row, int64_t width) noexcept {
    std::memset(row, 0, static_cast<size_t>(width) * bias_element_bytes); // 0 in every storage type
    return true;
}

// A row of out in memory for as many floats: zeros, or the bias of the output projection, which lies packed without gaps because it is
// one head.
bool row_of_out(const polyhead_problem &problem, const polyhead_args &args, char *row, int64_t width, polyhead_status *status) noexcept {
    const size_t bytes = static_cast<size_t>(width) * bias_element_bytes;
    if (!has_weights(problem) || !problem.bias) {
        return row_of_zeros(row, width);
    }
    const size_t offset = weight_layout(problem).out.bias_offset;
    if (args.weights->device) {
        *status = args.device->copy_to_host(args.weights->data, offset, bytes, row);
        if (status->code != POLYHEAD_OK) {
            return false;
        }
    } else {
        std::memcpy(row, static_cast<const char *>(args.weights->data) + offset, bytes);
    }
    with_stored(problem.dtype, [&](auto element) {
        for (int64_t i = 0; i < width; ++i) { // in place: no element takes more bytes than its float
            float bias;
            std::memcpy(&bias, row + i * sizeof bias, sizeof bias);
            const auto stored = as_stored<decltype(element)>(bias);
            std::memcpy(row + i * sizeof stored, &stored, sizeof stored);
        }
    });
    return true;
}

// The gradient of the bias of the output projection: the sum of all rows of grad_out, row by row.
void row_of_sums(const polyhead_tensor &grad_out, char *row) noexcept {
    with_stored(grad_out.dtype, [&](auto element) {
        using Stored = decltype(element);
        const auto *const data = static_cast<const Stored *>(grad_out.data) + grad_out.offset;
        for (int64_t n = 0; n < grad_out.shape[2]; ++n) {
            float sum = 0;
            for (int64_t b = 0; b < grad_out.shape[0]; ++b) {
                for (int64_t t = 0; t < grad_out.shape[1]; ++t) {
                    sum += as_float(data[b * grad_out.stride[0] + t * grad_out.stride[1] + n]);
                }
            }
            std::memcpy(row + n * int64_t(sizeof sum), &sum, sizeof sum);
        }
    });
}

// Writes a row of a result into memory for as many floats.
bool row_of(const TensorRow &result, const polyhead_problem &problem, const polyhead_args &args, char *row, int64_t width,
            polyhead_status *status) noexcept {
    if (result.tensor == &polyhead_args::out) {
        return row_of_out(problem, args, row, width, status);
    }
    if (result.tensor == &polyhead_args::grad_bias_out) {
        row_of_sums(args.grad_out, row);
        return true;
    }
    return row_of_zeros(row, width);
}

} // namespace

size_t bytes_without_keys(const polyhead_problem &problem, const polyhead_args &args) noexcept {
    size_t row_bytes = sizeof(float), most = 0;
    for (const TensorRow &row : taken_by(problem) & result_rows) {
        const polyhead_tensor &tensor = args.*row.tensor;
        if (!row.updated) {
            row_bytes = std::max(row_bytes, static_cast<size_t>(tensor.shape[tensor.rank - 1]) * bias_element_bytes);
            most = std::max(most, source_bytes(tensor));
        }
    }
    for (int32_t i = 0; i < args.num_expression_gradients; ++i) {
        const polyhead_tensor &tensor = args.expression_gradients[i];
        row_bytes = std::max(row_bytes, static_cast<size_t>(tensor.shape[tensor.rank - 1]) * bias_element_bytes);
        most = std::max(most, source_bytes(tensor));
    }
    return row_bytes + most;
}

void answer_without_keys(const polyhead_problem &problem, const polyhead_args &args, void *memory, polyhead_status *status) noexcept {
    const size_t all = bytes_without_keys(problem, args);
    for (const TensorRow &result : taken_by(problem) & result_rows) {
        const polyhead_tensor &tensor = args.*result.tensor;
        if (result.updated || status->code != POLYHEAD_OK) {
            continue;
        }
        char *const row = static_cast<char *>(memory), *const source = row + (all - source_bytes(tensor));
        if (result.tensor == &polyhead_args::lse) {
            const float nothing = -std::numeric_limits<float>::infinity();
            fill(tensor, &nothing, 1, source, args.device, status);
            continue;
        }
        const int64_t width = tensor.shape[tensor.rank - 1];
        if (row_of(result, problem, args, row, width, status)) {
            fill(tensor, row, width, source, args.device, status);
        }
    }
    for (int32_t i = 0; i < args.num_expression_gradients; ++i) { // on a CPU, where nothing fails
        const polyhead_tensor &tensor = args.expression_gradients[i];
        const int64_t width = tensor.shape[tensor.rank - 1];
        auto *const row = static_cast<char *>(memory);
        row_of_zeros(row, width);
        fill(tensor, row, width, row + (all - source_bytes(tensor)), args.device, status);
    }
}

} // namespace polyhead::runtime
