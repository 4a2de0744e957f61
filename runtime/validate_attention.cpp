// Checks the tensors that only some kernels take: those of masks, modifiers and user expressions, and the outputs beside out.
#include <algorithm>

#include "call_tensors.h"
#include "status.h"
#include "tensor_rules.h"
#include "validate_parts.h"

namespace polyhead::runtime {
namespace {

// What one call is held against.
struct GivenCall {
    const polyhead_problem &problem;
    const polyhead_args &args;
    const CallShape &shape;

    // The extents that a tensor's declarations require, and the tensors that they were taken from.
    void extents(const int32_t *declared, int32_t rank, Extent *extents) const noexcept {
        const bool packed = std::any_of(declared, declared + rank, [&](int32_t d) { return is_packed(d, shape); });
        for (int i = 0; i < rank; ++i) {
            extents[i] = packed && declared[i] == POLYHEAD_EXTENT_B ? Extent{1, "calls with packed tokens"} : extent(declared[i]);
        }
    }

    // One element is as good as none along no keys, wherever it would do for one.
    bool serves_no_key(int32_t declared) const noexcept { return declared == POLYHEAD_EXTENT_KV && shape.no_keys(); }

private:
    Extent extent(int32_t declared) const noexcept {
        const bool of_first = declared == POLYHEAD_EXTENT_B || declared == POLYHEAD_EXTENT_Q;
        const char *first = first_tensor_name(problem);
        const char *as_in = shape.packed_q && declared == POLYHEAD_EXTENT_B ? "the sequences of cu_seqlens_q"
                            : of_first                                      ? first
                            : declared == POLYHEAD_EXTENT_KV                ? (self_attention(problem) ? first : "key")
                                                                            : nullptr;
        return {extent_of(declared, problem, shape), as_in};
    }
};

// The same member may have several rows, one per dtype.
template <size_t count>
bool taken(const OptionalTensor (&rows)[count], const polyhead_problem &problem, polyhead_tensor polyhead_args::*tensor) noexcept {
    return std::any_of(rows, rows + count, [&](const OptionalTensor &row) { return row.tensor == tensor && takes(problem, row); });
}

template <size_t count>
bool check_surplus_of(const OptionalTensor (&rows)[count], const polyhead_problem &problem, const polyhead_args &args,
                      polyhead_status *status) noexcept {
    for (const OptionalTensor &row : rows) {
        if (!absent(args.*row.tensor) && !taken(rows, problem, row.tensor)) {
            return refuse(status, POLYHEAD_WRONG_OPERATION, "%s: given, expected none, because the kernel was built without %s", row.name,
                          row.feature);
        }
    }
    return true;
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

bool check_mask(const GivenCall &call, const OptionalTensor &row, polyhead_status *status) noexcept {
    const polyhead_tensor &tensor = call.args.*row.tensor;
    if (absent(tensor)) {
        return true;
    }
    int32_t declared[4] = {};
    for (int i = 0; i < row.rank; ++i) {
        declared[i] = one_element(row, call.problem, i) ? 1 : row.extents[i];
    }
    Extent extents[4];
    call.extents(declared, row.rank, extents);
    for (int i = 0; i < row.rank; ++i) {
        extents[i].as_in = declared[i] == 1 ? "the kernel, which has one element there" : extents[i].as_in;
        extents[i].or_one = may_have_one(row, call.problem, i) || call.serves_no_key(row.extents[i]);
    }
    return check_right_aligned({row.name, &tensor, row.dtype, Role::input, 0, {}}, 1, row.rank, extents, status);
}

bool check_optional_input(const GivenCall &call, const OptionalTensor &row, polyhead_status *status) noexcept {
    if (row.broadcasts) {
        return check_mask(call, row, status);
    }
    const polyhead_tensor &tensor = call.args.*row.tensor;
    if (absent(tensor) && row.neutral != Neutral::none) {
        return true;
    }
    Extent extents[4];
    call.extents(row.extents, row.rank, extents);
    const Role role = row.tensor == &polyhead_args::kv_lengths ? Role::lengths : row.neutral == Neutral::none ? Role::input : Role::spread;
    TensorRule rule{row.name, &tensor, row.dtype, role, row.rank, {}};
    if (row.tensor == &polyhead_args::alibi_slopes) { // for every batch row, or once
        return check_right_aligned(rule, 1, row.rank, extents, status);
    }
    std::copy(extents, extents + row.rank, rule.extents);
    return check_tensor(rule, status);
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

// The scales of pages are as many as the pages.
bool check_scale_pages(const polyhead_problem &p, const polyhead_args &args, polyhead_status *status) noexcept {
    const struct {
        const char *name;
        const polyhead_tensor &scales;
    } tensors[] = {{"key_scales", args.key_scales}, {"value_scales", args.value_scales}};
    for (const auto &t : tensors) {
        if (p.page_size > 0 && !absent(t.scales) && t.scales.shape[0] != args.key.shape[0]) {
            return refuse(status, POLYHEAD_WRONG_SHAPE, "%s: extent %lld of dimension 0, expected %lld as in key", t.name,
                          static_cast<long long>(t.scales.shape[0]), static_cast<long long>(args.key.shape[0]));
        }
    }
    return true;
}

bool check_expression_tensor(const GivenCall &call, const polyhead_declaration &declared, const polyhead_tensor &tensor,
                             polyhead_status *status) noexcept {
    TensorRule rule{declared.name, &tensor, declared.dtype, Role::input, std::max(declared.rank, 1), {}};
    rule.extents[0].extent = 1; // of one number
    call.extents(declared.extents, declared.rank, rule.extents);
    for (int i = 0; i < declared.rank; ++i) {
        rule.extents[i].or_one = may_have_one(declared, i) || call.serves_no_key(declared.extents[i]);
    }
    if (!check_tensor(rule, status)) {
        return false;
    }
    for (int i = 0; i < rule.rank; ++i) {
        const int64_t full = rule.extents[i].extent == any_extent ? tensor.shape[i] : rule.extents[i].extent;
        if (full == 0 && !call.shape.nothing_to_do() && !call.shape.no_keys()) { // no kernel could index it
            return refuse(status, POLYHEAD_WRONG_SHAPE, "%s: extent 0 of dimension %d, expected at least 1", declared.name, i);
        }
    }
    return true;
}

} // namespace

bool check_surplus_optional(const polyhead_kernel &kernel, const polyhead_args &args, polyhead_status *status) noexcept {
    if (!check_surplus_of(optional_inputs, kernel.problem, args, status) ||
        !check_surplus_of(optional_outputs, kernel.problem, args, status)) {
        return false;
    }
    const int32_t found = args.num_expression_tensors, expected = kernel.num_declarations;
    if (found != expected) {
        return refuse(status, POLYHEAD_WRONG_OPERATION, "expression_tensors: %d given, expected %d, which the kernel's expression declares",
                      found, expected);
    }
    if (expected > most_expression_tensors) {
        return refuse(status, POLYHEAD_UNSUPPORTED, "expression_tensors: the kernel declares %d, expected at most %d", expected,
                      most_expression_tensors);
    }
    return expected == 0 || args.expression_tensors ||
           refuse(status, POLYHEAD_NULL_POINTER, "expression_tensors: null pointer, expected an array of %d tensors", expected);
}

bool check_optional_tensors(const polyhead_kernel &kernel, const polyhead_problem &problem, const polyhead_args &args,
                            const CallShape &shape, polyhead_status *status) noexcept {
    const GivenCall call{problem, args, shape};
    for (const OptionalTensor &row : optional_inputs) {
        if (takes(problem, row) && !check_optional_input(call, row, status)) {
            return false;
        }
    }
    if (!check_scale_pages(problem, args, status) || (problem.rope != POLYHEAD_NO_ROPE && !check_rope_tables(args, status))) {
        return false;
    }
    for (int32_t i = 0; i < kernel.num_declarations; ++i) {
        if (!check_expression_tensor(call, kernel.declarations[i], args.expression_tensors[i], status)) {
            return false;
        }
    }
    for (const OptionalTensor &row : optional_outputs) {
        TensorRule rule{row.name, &(args.*row.tensor), row.dtype, Role::output, row.rank, {}};
        call.extents(row.extents, row.rank, rule.extents);
        if (takes(problem, row) && !check_tensor(rule, status)) {
            return false;
        }
    }
    return true;
}

} // namespace polyhead::runtime
