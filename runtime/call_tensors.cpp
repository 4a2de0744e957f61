// Goes through the tensors of one call by the table of optional tensors.
#include "call_tensors.h"

#include "tensor_rules.h"

namespace polyhead::runtime {

CallTensors::CallTensors(const polyhead_kernel &kernel, const polyhead_args &args) noexcept {
    add(first_tensor_name(kernel.problem), args.query);
    add("key", args.key);
    add("value", args.value);
    for (const OptionalTensor &row : optional_inputs) {
        if (takes(kernel.problem, row)) {
            add(row.name, args.*row.tensor);
        }
    }
    add("cu_seqlens_q", args.cu_seqlens_q);
    add("cu_seqlens_kv", args.cu_seqlens_kv);
    for (int32_t i = 0; i < kernel.num_declarations; ++i) {
        add(kernel.declarations[i].name, args.expression_tensors[i]);
    }
    first_output_ = count_;
    add("out", args.out);
    for (const OptionalTensor &row : optional_outputs) {
        if (takes(kernel.problem, row)) {
            add(row.name, args.*row.tensor);
        }
    }
}

void CallTensors::add(const char *name, const polyhead_tensor &tensor) noexcept {
    if (!absent(tensor)) {
        tensors_[count_++] = {name, &tensor};
    }
}

int64_t extent_of(int32_t declared, const polyhead_problem &problem, const CallShape &shape) noexcept {
    switch (declared) {
    case POLYHEAD_EXTENT_FREE:
        return any_extent;
    case POLYHEAD_EXTENT_B:
        return shape.batch;
    case POLYHEAD_EXTENT_H:
        return problem.num_heads;
    case POLYHEAD_EXTENT_Q:
        return shape.seq_len_q;
    case POLYHEAD_EXTENT_KV:
        return shape.seq_len_kv;
    case extent_rotary_pairs:
        return rotary_dim_of(problem) / 2;
    case extent_pages:
        return problem.page_size > 0 ? shape.seq_len_kv / problem.page_size : 0;
    case extent_cache_blocks:
        return problem.page_size > 0 ? any_extent : shape.batch;
    case extent_kv_heads:
        return problem.num_kv_heads;
    case extent_cache_keys:
        return problem.page_size > 0 ? problem.page_size : shape.seq_len_kv;
    case extent_head_dim:
        return problem.head_dim;
    case extent_head_dim_v:
        return problem.head_dim_v;
    case extent_page_size:
        return problem.page_size;
    case extent_key_scales:
        return scales_of(problem, problem.head_dim);
    case extent_value_scales:
        return scales_of(problem, problem.head_dim_v);
    default:
        return declared;
    }
}

bool one_element(const OptionalTensor &row, const polyhead_problem &problem, int dimension) noexcept {
    const int32_t broadcast = broadcast_of(problem, row.tensor), declared = row.extents[dimension];
    return (declared == POLYHEAD_EXTENT_Q && (broadcast & POLYHEAD_BROADCAST_Q)) ||
           (declared == POLYHEAD_EXTENT_KV && (broadcast & POLYHEAD_BROADCAST_KV));
}

bool may_have_one(const OptionalTensor &row, const polyhead_problem &problem, int dimension) noexcept {
    return row.broadcasts && (row.extents[dimension] != POLYHEAD_EXTENT_KV || one_element(row, problem, dimension));
}

// Kernels load vectors along the innermost dimension: it is whole.
bool may_have_one(const polyhead_declaration &declaration, int dimension) noexcept {
    return declaration.extents[dimension] < POLYHEAD_EXTENT_FREE && dimension + 1 < declaration.rank;
}

bool over_keys(const OptionalTensor &row, const polyhead_problem &problem) noexcept {
    return row.broadcasts && !one_element(row, problem, row.rank - 1);
}

void full_extents(const OptionalTensor &row, const polyhead_problem &problem, const CallShape &shape, int64_t *extents) noexcept {
    for (int i = 0; i < row.rank; ++i) {
        extents[i] = one_element(row, problem, i) ? 1 : extent_of(row.extents[i], problem, shape);
    }
}

} // namespace polyhead::runtime
