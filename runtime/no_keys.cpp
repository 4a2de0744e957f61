// The answer when seq_len_kv is 0: attention is 0 in every row and lse is -inf, so a layer gives the bias of its output projection.
// It is written here and not by kernels, because Halide refuses an input without elements before it looks at loops that run 0 times.
#include "no_keys.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "status.h"
#include "weight_layout.h"

namespace polyhead::runtime {
namespace {

// Calls write(row) for the first byte of every innermost row, whose stride is 1.
template <typename Write> void for_each_row(const polyhead_tensor &t, Write write) noexcept {
    int64_t extents[POLYHEAD_MAX_RANK], strides[POLYHEAD_MAX_RANK];
    std::fill(extents, extents + POLYHEAD_MAX_RANK, 1);
    std::fill(strides, strides + POLYHEAD_MAX_RANK, 0);
    std::copy(t.shape, t.shape + t.rank - 1, extents);
    std::copy(t.stride, t.stride + t.rank - 1, strides);
    char *data = static_cast<char *>(t.data);
    for (int64_t i = 0; i < extents[0]; ++i) {
        for (int64_t j = 0; j < extents[1]; ++j) {
            for (int64_t k = 0; k < extents[2]; ++k) {
                write(data + (i * strides[0] + j * strides[1] + k * strides[2]) * dtype_bytes(t.dtype));
            }
        }
    }
}

} // namespace

void answer_without_keys(const polyhead_problem &problem, const polyhead_args &args) noexcept {
    const size_t row_bytes = static_cast<size_t>(args.out.shape[args.out.rank - 1] * dtype_bytes(args.out.dtype));
    if (problem.op == POLYHEAD_MHA && problem.bias) {
        // Biases lie packed without gaps when a section is one head. Packed weights are f32, and so is out.
        const char *bias = static_cast<const char *>(args.weights->data) + weight_layout(problem).out.bias_offset;
        for_each_row(args.out, [=](char *row) { std::memcpy(row, bias, row_bytes); });
    } else {
        for_each_row(args.out, [=](char *row) { std::memset(row, 0, row_bytes); }); // 0 in every storage type
    }
    if (problem.lse) {
        const int64_t rows = args.lse.shape[2];
        for_each_row(args.lse, [=](char *row) {
            float *lse = reinterpret_cast<float *>(row);
            std::fill(lse, lse + rows, -std::numeric_limits<float>::infinity());
        });
    }
}

} // namespace polyhead::runtime
