// Goes through the tensors of one call by their rows.
#include "call_tensors.h"

#include "../rules/tensor_rules.h"

namespace polyhead::runtime {

CallTensors::CallTensors(const KernelTable &kernel, const polyhead_args &args) noexcept {
    for (const TensorRow &row : kernel.tensors & ~result_rows) {
        add(said_of(row), args.*row.tensor);
    }
    for (int32_t i = 0; i < kernel.num_declarations; ++i) {
        add(kernel.declarations[i].name, args.expression_tensors[i]);
    }
    first_output_ = count_;
    for (const TensorRow &row : kernel.tensors &result_rows) {
        add(said_of(row), args.*row.tensor);
    }
    for (int32_t i = 0; i < kernel.num_gradients; ++i) {
        add(kernel.gradient_name(kernel.gradients[i]), args.expression_gradients[i]);
    }
}

void CallTensors::add(const char *name, const polyhead_tensor &tensor) noexcept {
    if (!absent(tensor)) {
        tensors_[count_++] = {name, &tensor};
    }
}

int64_t extent_of(int32_t declared, const polyhead_problem &problem, const CallShape &shape) noexcept {
    const int32_t what = counted(declared, problem);
    switch (what) {
    case POLYHEAD_EXTENT_FREE:
    case extent_blocks: // pages
        return any_extent;
    case POLYHEAD_EXTENT_B:
        return shape.batch;
    case POLYHEAD_EXTENT_Q:
    case extent_rows:
        return shape.seq_len_q;
    case POLYHEAD_EXTENT_KV:
        return shape.seq_len_kv;
    case extent_pages:
        return problem.page_size > 0 ? shape.seq_len_kv / problem.page_size : 0;
    case extent_sequences:
        return shape.batch + 1;
    default:
        return fixed_extent(what, problem);
    }
}

bool one_element(const TensorRow &row, const polyhead_problem &problem, int dimension) noexcept {
    if (!row.broadcasts) {
        return false;
    }
    const int32_t broadcast = broadcast_of(problem, row.tensor), declared = row.extents[dimension];
    return (declared == POLYHEAD_EXTENT_Q && (broadcast & POLYHEAD_BROADCAST_Q)) ||
           (declared == POLYHEAD_EXTENT_KV && (broadcast & POLYHEAD_BROADCAST_KV));
}

// A bias whose gradient is wanted has as many rows as the kernel was built for: it adds them up, or not.
bool may_have_one(const TensorRow &row, const polyhead_problem &problem, int dimension) noexcept {
    const bool of_bias = row.tensor == &polyhead_args::score_bias || row.tensor == &polyhead_args::grad_score_bias;
    const bool built = row.extents[dimension] == POLYHEAD_EXTENT_KV ||
                       (row.extents[dimension] == POLYHEAD_EXTENT_Q && problem.grad_score_bias != 0 && of_bias);
    return row.broadcasts && (!built || one_element(row, problem, dimension));
}

// Kernels load vectors along the innermost dimension: it is whole.
bool may_have_one(const polyhead_declaration &declaration, int dimension) noexcept {
    return declaration.extents[dimension] < POLYHEAD_EXTENT_FREE && dimension + 1 < declaration.rank;
}

bool over_keys(const TensorRow &row, const polyhead_problem &problem) noexcept {
    return row.broadcasts && !one_element(row, problem, row.rank - 1);
}

void full_extents(const TensorRow &row, const polyhead_problem &problem, const CallShape &shape, int64_t *extents) noexcept {
    for (int i = 0; i < row.rank; ++i) {
        extents[i] = one_element(row, problem, i) ? 1 : extent_of(row.extents[i], problem, shape);
    }
}

} // namespace polyhead::runtime
