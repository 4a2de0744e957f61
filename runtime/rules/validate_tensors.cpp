// Checks the tensors of a call by their rows (contract/tensors.h): whether the kernel takes what was given, and shapes, types and strides.
#include <algorithm>
#include <iterator>

#include "../call/call_tensors.h"
#include "../status.h"
#include "bound_extents.h"
#include "tensor_rules.h"
#include "validate_parts.h"

namespace polyhead::runtime {
namespace {

bool refuse_surplus(const polyhead_problem &problem, const TensorRow &given, polyhead_status *status) noexcept {
    const auto own = std::find_if(std::begin(tensors), std::end(tensors),
                                  [&](const TensorRow &row) { return row.tensor == given.tensor && (row.ops & op_bit(problem.op)) != 0; });
    const TensorRow &row = own != std::end(tensors) ? *own : given;
    const bool with_feature = row.feature != nullptr;
    const char *reason = with_feature ? row.feature : own != std::end(tensors) && row.without ? row.without : what_op(problem.op);
    return refuse(status, POLYHEAD_WRONG_OPERATION, "%s: given, expected none, because the kernel %s%s", given.name,
                  with_feature ? "was built without " : "", reason);
}

Role role_of(const TensorRow &row) noexcept {
    return row.place == Place::result                        ? Role::output
           : row.any_stride                                  ? Role::lengths
           : row.neutral != Neutral::none && !row.broadcasts ? Role::spread
                                                             : Role::input;
}

// A tensor of any rank from least to most, whose dimensions are the last ones of the full extents.
bool check_right_aligned(TensorRule rule, int32_t least, int32_t most, const Extent *extents, polyhead_status *status) noexcept {
    const int32_t rank = rule.tensor->rank;
    if (rank < least || rank > most) {
        return refuse(status, POLYHEAD_WRONG_SHAPE, "%s: rank %d, expected %d to %d", rule.name, rank, least, most);
    }
    rule.rank = rank;
    std::copy(extents + most - rank, extents + most, rule.extents);
    return check_tensor(rule, status);
}

// One element is as good as none along no keys, wherever it would do for one.
bool serves_no_key(int32_t declared, const BoundExtents &extents) noexcept {
    return declared == POLYHEAD_EXTENT_KV && extents.expected(declared).extent == 0;
}

bool check_row(const TensorRow &row, const BoundExtents &bound, const polyhead_args &args, polyhead_status *status) noexcept {
    const polyhead_tensor &tensor = args.*row.tensor;
    const polyhead_problem &problem = bound.problem();
    if (absent(tensor) && row.neutral != Neutral::none) {
        return true;
    }
    int32_t declared[4] = {};
    for (int i = 0; i < row.rank; ++i) {
        declared[i] = one_element(row, problem, i) ? 1 : row.extents[i];
    }
    TensorRule rule{said_of(row), &tensor, row.dtype(problem), role_of(row), row.rank, {}};
    bound.expected(declared, row.rank, rule.extents);
    for (int i = 0; i < row.rank && row.broadcasts; ++i) {
        rule.extents[i].as_in = declared[i] == 1 ? "the kernel, which has one element there" : rule.extents[i].as_in;
        rule.extents[i].or_one = may_have_one(row, problem, i) || serves_no_key(row.extents[i], bound);
    }
    if (row.least_rank == 0 || absent(tensor)) {
        return check_tensor(rule, status);
    }
    Extent full[4];
    std::copy(rule.extents, rule.extents + row.rank, full);
    return check_right_aligned(rule, row.least_rank, row.rank, full, status);
}

bool check_expression_tensor(const BoundExtents &bound, const polyhead_declaration &declared, const polyhead_tensor &tensor,
                             polyhead_status *status) noexcept {
    TensorRule rule{declared.name, &tensor, declared.dtype, Role::input, std::max(declared.rank, 1), {}};
    rule.extents[0].extent = 1; // of one number
    bound.expected(declared.extents, declared.rank, rule.extents);
    for (int i = 0; i < declared.rank; ++i) {
        rule.extents[i].or_one = may_have_one(declared, i) || serves_no_key(declared.extents[i], bound);
    }
    if (!check_tensor(rule, status)) {
        return false;
    }
    const CallShape shape = bound.shape();
    for (int i = 0; i < rule.rank; ++i) {
        const int64_t full = rule.extents[i].extent == any_extent ? tensor.shape[i] : rule.extents[i].extent;
        if (full == 0 && !shape.nothing_to_do() && !shape.no_pairs()) { // no kernel could index it
            return refuse(status, POLYHEAD_WRONG_SHAPE, "%s: extent 0 of dimension %d, expected at least 1", declared.name, i);
        }
    }
    return true;
}

bool check_expression_tensors(const KernelTable &kernel, const BoundExtents &bound, const polyhead_args &args,
                              polyhead_status *status) noexcept {
    for (int32_t i = 0; i < kernel.num_declarations; ++i) {
        if (!check_expression_tensor(bound, kernel.declarations[i], args.expression_tensors[i], status)) {
            return false;
        }
    }
    return true;
}

// The gradients of tensors of the expression have their shapes.
bool check_expression_gradients(const KernelTable &kernel, const polyhead_args &args, polyhead_status *status) noexcept {
    for (int32_t i = 0; i < kernel.num_gradients; ++i) {
        const int32_t declared = kernel.gradients[i];
        const polyhead_tensor &of = args.expression_tensors[declared];
        const char *const of_name = kernel.declarations[declared].name;
        TensorRule rule{kernel.gradient_name(declared), &args.expression_gradients[i], POLYHEAD_F32, Role::output, of.rank, {}};
        for (int d = 0; d < of.rank; ++d) {
            rule.extents[d] = {of.shape[d], of_name};
        }
        if (!check_tensor(rule, status)) {
            return false;
        }
    }
    return true;
}

// Both tables have the same rows, and at least one.
bool check_rope_tables(const polyhead_args &args, polyhead_status *status) noexcept {
    const int64_t rows = args.rope_cos.shape[0];
    if (rows < 1) {
        return refuse(status, POLYHEAD_WRONG_SHAPE, "rope_cos: extent 0 of dimension 0, expected at least 1");
    }
    if (args.rope_sin.shape[0] != rows) {
        return refuse(status, POLYHEAD_WRONG_SHAPE, "rope_sin: extent %lld of dimension 0, expected %lld as in rope_cos",
                      static_cast<long long>(args.rope_sin.shape[0]), static_cast<long long>(rows));
    }
    return true;
}

// The gradient of a tensor that the call gave has its shape.
bool check_like(const char *name, const polyhead_tensor &gradient, const char *of_name, const polyhead_tensor &of,
                polyhead_status *status) noexcept {
    if (absent(of)) {
        return true;
    }
    if (gradient.rank != of.rank) {
        return refuse(status, POLYHEAD_WRONG_SHAPE, "%s: rank %d, expected %d as %s", name, gradient.rank, of.rank, of_name);
    }
    for (int i = 0; i < of.rank; ++i) {
        if (gradient.shape[i] != of.shape[i]) {
            return refuse(status, POLYHEAD_WRONG_SHAPE, "%s: extent %lld of dimension %d, expected %lld as in %s", name,
                          static_cast<long long>(gradient.shape[i]), i, static_cast<long long>(of.shape[i]), of_name);
        }
    }
    return true;
}

bool check_gradients(const polyhead_problem &p, const polyhead_args &args, const CallShape &shape, polyhead_status *status) noexcept {
    if (p.grad_score_bias && args.grad_score_bias.rank < 2 && shape.seq_len_q > 1 && (p.score_bias_broadcast & POLYHEAD_BROADCAST_Q) == 0) {
        return refuse(status, POLYHEAD_WRONG_SHAPE,
                      "grad_score_bias: rank 1, expected 2 to 4, because the kernel has a row for each query");
    }
    return (!p.grad_score_bias || check_like("grad_score_bias", args.grad_score_bias, "score_bias", args.score_bias, status)) &&
           (!p.grad_alibi || check_like("grad_alibi_slopes", args.grad_alibi_slopes, "alibi_slopes", args.alibi_slopes, status));
}

bool check_those(const TensorSet &rows, const BoundExtents &bound, const polyhead_args &args, polyhead_status *status) noexcept {
    for (const TensorRow &row : rows & ~length_rows) {
        if (!check_row(row, bound, args, status)) {
            return false;
        }
    }
    return true;
}

// Tensors of the expression, or their gradients: as many as the kernel has, and an array of them.
bool check_number(const char *name, int32_t found, int32_t expected, const void *array, const char *why, polyhead_status *status) noexcept {
    if (found != expected) {
        return refuse(status, POLYHEAD_WRONG_OPERATION, "%s: %d given, expected %d, which the kernel's expression %s", name, found,
                      expected, why);
    }
    if (expected > most_expression_tensors) {
        return refuse(status, POLYHEAD_UNSUPPORTED, "%s: the kernel declares %d, expected at most %d", name, expected,
                      most_expression_tensors);
    }
    return expected == 0 || array ||
           refuse(status, POLYHEAD_NULL_POINTER, "%s: null pointer, expected an array of %d tensors", name, expected);
}

} // namespace

bool check_surplus(const KernelTable &kernel, const polyhead_args &args, polyhead_status *status) noexcept {
    const polyhead_problem &problem = kernel.problem;
    for (const TensorRow &row : kernel.not_taken) {
        if (!absent(args.*row.tensor)) {
            return refuse_surplus(problem, row, status);
        }
    }
    if (!has_weights(problem) && args.weights) {
        return refuse(status, POLYHEAD_WRONG_OPERATION, "weights: given, expected none, because the kernel %s", what_op(problem.op));
    }
    return check_number("expression_tensors", args.num_expression_tensors, kernel.num_declarations, args.expression_tensors, "declares",
                        status) &&
           check_number("expression_gradients", args.num_expression_gradients, kernel.num_gradients, args.expression_gradients, "asks for",
                        status);
}

bool check_lengths_of(const TensorRow &row, const polyhead_args &args, BoundExtents *bound, polyhead_status *status) noexcept {
    if (!check_row(row, *bound, args, status)) {
        return false;
    }
    bound->give(row, args.*row.tensor);
    return true;
}

bool check_other_tensors(const KernelTable &kernel, const BoundExtents &bound, const polyhead_args &args,
                         polyhead_status *status) noexcept {
    return check_those(kernel.tensors & option_rows, bound, args, status) &&
           (bound.problem().rope == POLYHEAD_NO_ROPE || check_rope_tables(args, status)) &&
           check_expression_tensors(kernel, bound, args, status) && check_those(kernel.tensors & result_rows, bound, args, status) &&
           check_gradients(bound.problem(), args, bound.shape(), status) && check_expression_gradients(kernel, args, status);
}

} // namespace polyhead::runtime
