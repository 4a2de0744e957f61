// Divides calls whose grids of blocks would be too large for a device.
#include "launch_limits.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "call_tensors.h"
#include "device.h"
#include "status.h"
#include "tensor_rules.h"

namespace polyhead::runtime {
namespace {

bool has_score_outputs(const polyhead_problem &p) noexcept {
    return p.op != POLYHEAD_LINEAR && (p.scores != POLYHEAD_NO_SCORES || p.weights_mean != 0);
}

// Rows of one block of a linear layer or of a layer's projections, a number of the variant's tiling.
int64_t linear_block(const polyhead_variant &variant) noexcept {
    static constexpr char name[] = "linear_block=";
    const char *found = variant.tiling ? std::strstr(variant.tiling, name) : nullptr;
    return found ? std::max(1L, std::strtol(found + sizeof name - 1, nullptr, 10)) : 1;
}

// Indices first .. first + count - 1 of the outermost dimension, unless one element serves for all.
void narrow(polyhead_tensor *tensor, int64_t first, int64_t count) noexcept {
    if (!absent(*tensor) && tensor->shape[0] > 1) {
        tensor->offset += first * tensor->stride[0];
        tensor->shape[0] = count;
    }
}

template <size_t rows>
void narrow_optional(const OptionalTensor (&table)[rows], const polyhead_problem &problem, polyhead_args *args, int64_t first,
                     int64_t count) noexcept {
    for (const OptionalTensor &row : table) {
        polyhead_tensor &tensor = args->*row.tensor;
        if (takes(problem, row) && row.extents[0] == POLYHEAD_EXTENT_B && tensor.rank == row.rank) {
            narrow(&tensor, first, count);
        }
    }
}

} // namespace

int64_t rows_of_launch(const polyhead_kernel &kernel, const polyhead_variant &variant, const polyhead_device &device,
                       const CallShape &shape) noexcept {
    const polyhead_problem &p = kernel.problem;
    if (p.op == POLYHEAD_LINEAR) {
        return device.most_blocks * linear_block(variant);
    }
    return has_score_outputs(p) ? std::max<int64_t>(1, device.most_blocks / shape.num_heads) : device.most_blocks;
}

bool check_launch(const polyhead_kernel &kernel, const polyhead_variant &variant, const polyhead_args &args, const CallShape &shape,
                  polyhead_status *status) noexcept {
    constexpr int64_t keys_of_block = 64; // schedules/score_output_gpu.cpp
    const polyhead_problem &p = kernel.problem;
    const int64_t rows = args.device->most_blocks * linear_block(variant), keys = args.device->most_blocks * keys_of_block;
    if (p.op == POLYHEAD_MHA && std::max(shape.seq_len_q, shape.seq_len_kv) > rows) {
        const bool query = shape.seq_len_q > rows;
        return refuse(status, POLYHEAD_UNSUPPORTED, "%s: extent %lld of dimension 1, expected at most %lld, the limit of device %s",
                      query ? "input" : "key", static_cast<long long>(query ? shape.seq_len_q : shape.seq_len_kv),
                      static_cast<long long>(rows), args.device->name);
    }
    if (has_score_outputs(p) && shape.seq_len_kv > keys) {
        return refuse(status, POLYHEAD_UNSUPPORTED,
                      "key: extent %lld of dimension %d, expected at most %lld, the limit of device %s where scores are an output",
                      static_cast<long long>(shape.seq_len_kv), p.op == POLYHEAD_SDPA ? 2 : 1, static_cast<long long>(keys),
                      args.device->name);
    }
    return true;
}

PartOfCall::PartOfCall(const polyhead_kernel &kernel, const polyhead_args &args, int64_t first, int64_t count) noexcept : args_(args) {
    const polyhead_problem &p = kernel.problem;
    narrow(&args_.query, first, count);
    narrow(&args_.out, first, count);
    if (p.page_size == 0) { // pages belong to no batch row
        narrow(&args_.key, first, count);
        narrow(&args_.value, first, count);
    }
    narrow_optional(optional_inputs, p, &args_, first, count);
    narrow_optional(optional_outputs, p, &args_, first, count);
    std::copy_n(args.expression_tensors, kernel.num_declarations, expression_tensors_);
    for (int32_t i = 0; i < kernel.num_declarations; ++i) {
        const polyhead_declaration &declared = kernel.declarations[i];
        for (int dimension = 0; dimension < declared.rank; ++dimension) {
            polyhead_tensor &tensor = expression_tensors_[i];
            if (declared.extents[dimension] == POLYHEAD_EXTENT_B && tensor.shape[dimension] > 1) {
                tensor.offset += first * tensor.stride[dimension];
                tensor.shape[dimension] = count;
            }
        }
    }
    args_.expression_tensors = expression_tensors_;
}

} // namespace polyhead::runtime
