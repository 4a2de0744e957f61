// Takes the views that a part of a call has of the call's tensors.
#include "part_of_call.h"

#include <algorithm>

#include "call_tensors.h"
#include "tensor_rules.h"

namespace polyhead::runtime {
namespace {

constexpr int32_t B = POLYHEAD_EXTENT_B, H = POLYHEAD_EXTENT_H, Q = POLYHEAD_EXTENT_Q, KV = POLYHEAD_EXTENT_KV, any = POLYHEAD_EXTENT_FREE;

// What the dimensions of a tensor are; a tensor of a lower rank has the last ones of them.
struct Dimensions {
    const int32_t *declared; // POLYHEAD_EXTENT_
    int32_t rank;

    int of(const polyhead_tensor &tensor) const noexcept { return std::min(tensor.rank, rank); }
    int32_t at(const polyhead_tensor &tensor, int i) const noexcept { return declared[rank - of(tensor) + i]; }
};

constexpr int32_t of_query[] = {B, H, Q, any}, of_key[] = {B, H, KV, any}, of_layer[] = {B, any, any}, of_linear[] = {B, any},
                  of_cache[] = {B, any, any, any};

// Calls visit(tensor, dimensions) for every tensor of which a part of a call has a part.
template <typename Args, typename Tensor, typename Visit>
void for_each_tensor(const polyhead_kernel &kernel, Args *args, Tensor *of_expression, const Visit &visit) noexcept {
    const polyhead_problem &p = kernel.problem;
    const Dimensions rows = p.op == POLYHEAD_LINEAR ? Dimensions{of_linear, 2} : Dimensions{of_layer, 3};
    const bool sdpa = p.op == POLYHEAD_SDPA;
    visit(&args->query, sdpa ? Dimensions{of_query, 4} : rows);
    visit(&args->out, sdpa ? Dimensions{of_query, 4} : rows);
    if (p.page_size == 0) { // pages belong to no batch row
        visit(&args->key, sdpa ? Dimensions{of_key, 4} : rows);
        visit(&args->value, sdpa ? Dimensions{of_key, 4} : rows);
    }
    for (const OptionalTensor &row : optional_inputs) {
        if (takes(p, row)) {
            visit(&(args->*row.tensor), Dimensions{row.extents, row.rank});
        }
    }
    for (const OptionalTensor &row : optional_outputs) {
        if (takes(p, row) && is_cache(row)) {
            if (p.page_size == 0) {
                visit(&(args->*row.tensor), Dimensions{of_cache, 4});
            }
        } else if (takes(p, row)) {
            visit(&(args->*row.tensor), Dimensions{row.extents, row.rank});
        }
    }
    for (int32_t i = 0; i < kernel.num_declarations; ++i) {
        visit(&of_expression[i], Dimensions{kernel.declarations[i].extents, kernel.declarations[i].rank});
    }
}

// In a dimension of one element, this element serves for all.
void take(polyhead_tensor *tensor, const Dimensions &dimensions, const Part &part) noexcept {
    int batch = -1;
    int64_t between = 0; // elements from a sequence to the next
    bool packed = false;
    for (int i = 0; i < dimensions.of(*tensor); ++i) {
        const int32_t declared = dimensions.at(*tensor, i);
        batch = declared == B ? i : batch;
        const Tokens *tokens = declared == Q && part.packed_q ? &part.queries : declared == KV && part.packed_kv ? &part.keys : nullptr;
        if (tokens && tensor->shape[i] != 1) {
            packed = true;
            tensor->offset += tokens->first * tensor->stride[i];
            tensor->shape[i] = tokens->each;
            between += tokens->each * tensor->stride[i];
        }
    }
    if (batch >= 0 && packed) {
        tensor->shape[batch] = part.count;
        tensor->stride[batch] = between;
    } else if (batch >= 0 && tensor->shape[batch] > 1) {
        tensor->offset += part.first * tensor->stride[batch];
        tensor->shape[batch] = part.count;
    }
}

} // namespace

PartOfCall::PartOfCall(const polyhead_kernel &kernel, const polyhead_args &args, const Part &part) noexcept : args_(args) {
    std::copy_n(args.expression_tensors, kernel.num_declarations, expression_tensors_);
    args_.expression_tensors = expression_tensors_;
    args_.cu_seqlens_q = args_.cu_seqlens_kv = polyhead_tensor{};
    for_each_tensor(kernel, &args_, expression_tensors_, [&](polyhead_tensor *tensor, const Dimensions &dimensions) {
        if (!absent(*tensor)) {
            take(tensor, dimensions, part);
        }
    });
}

bool can_be_batched(const polyhead_kernel &kernel, const polyhead_args &args, const CallShape &shape) noexcept {
    bool can = true;
    for_each_tensor(kernel, &args, args.expression_tensors, [&](const polyhead_tensor *tensor, const Dimensions &dimensions) {
        bool batch = false, packed = false;
        for (int i = 0; i < dimensions.of(*tensor); ++i) {
            const int32_t declared = dimensions.at(*tensor, i);
            batch = batch || declared == B;
            packed = packed || (tensor->shape[i] != 1 && is_packed(declared, shape));
        }
        can = can && (absent(*tensor) || batch || !packed);
    });
    return can;
}

} // namespace polyhead::runtime
