// Takes the views that a part of a call has of the call's tensors.
#include "part_of_call.h"

#include <algorithm>

#include "../rules/tensor_rules.h"
#include "call_tensors.h"

namespace polyhead::runtime {
namespace {

constexpr int32_t B = POLYHEAD_EXTENT_B, Q = POLYHEAD_EXTENT_Q, KV = POLYHEAD_EXTENT_KV;

// What the dimensions of a tensor count; a tensor of a lower rank has the last ones of them.
class Dimensions {
public:
    Dimensions(const TensorRow &row, const polyhead_problem &problem) noexcept : rank_(row.rank) {
        for (int i = 0; i < rank_; ++i) {
            add(i, row.extents[i] == extent_rows ? B : counted(row.extents[i], problem), may_have_one(row, problem, i));
        }
    }
    explicit Dimensions(const polyhead_declaration &declaration) noexcept : rank_(declaration.rank) {
        for (int i = 0; i < rank_; ++i) {
            add(i, declaration.extents[i], may_have_one(declaration, i));
        }
    }

    int of(const polyhead_tensor &tensor) const noexcept { return std::min(tensor.rank, rank_); }
    int32_t at(const polyhead_tensor &tensor, int i) const noexcept { return counted_[rank_ - of(tensor) + i]; }
    // One element serves for all of dimension i. Where it may not, an extent of 1 counts: that of one token in all, say.
    bool spread(const polyhead_tensor &tensor, int i) const noexcept {
        return tensor.shape[i] == 1 && may_have_one_[rank_ - of(tensor) + i];
    }

private:
    void add(int i, int32_t what, bool or_one) noexcept {
        counted_[i] = what;
        may_have_one_[i] = or_one;
    }

    int32_t rank_, counted_[4] = {};
    bool may_have_one_[4] = {};
};

// Calls visit(tensor, dimensions) for every tensor of which a part of a call has a part.
template <typename Args, typename Tensor, typename Visit>
void for_each_tensor(const KernelTable &kernel, Args *args, Tensor *of_expression, Tensor *gradients, const Visit &visit) noexcept {
    for (const TensorRow &row : kernel.tensors & ~host_rows) {
        visit(&(args->*row.tensor), Dimensions(row, kernel.problem));
    }
    for (int32_t i = 0; i < kernel.num_declarations; ++i) {
        visit(&of_expression[i], Dimensions(kernel.declarations[i]));
    }
    for (int32_t i = 0; i < kernel.num_gradients; ++i) {
        visit(&gradients[i], Dimensions(kernel.declarations[kernel.gradients[i]]));
    }
}

// Tokens that a part has of a dimension; null: all.
const Tokens *tokens_of(const Part &part, int32_t declared) noexcept {
    return declared == Q && (part.packed_q || part.some_queries) ? &part.queries : declared == KV && part.packed_kv ? &part.keys : nullptr;
}

// Elements from an index to the first one. Strides of dimensions with one element, and of tensors without any, may be any numbers: where
// the product is beyond 64 bits, nothing is read there.
int64_t distance(int64_t index, int64_t stride) noexcept {
    return static_cast<int64_t>(static_cast<uint64_t>(index) * static_cast<uint64_t>(stride));
}
void move(int64_t *place, int64_t by) noexcept {
    *place = static_cast<int64_t>(static_cast<uint64_t>(*place) + static_cast<uint64_t>(by));
}

void take(polyhead_tensor *tensor, const Dimensions &dimensions, const Part &part) noexcept {
    int batch = -1;
    int64_t between = 0; // elements from a sequence to the next
    bool packed = false;
    for (int i = 0; i < dimensions.of(*tensor); ++i) {
        const int32_t declared = dimensions.at(*tensor, i);
        batch = declared == B ? i : batch;
        const Tokens *const tokens = tokens_of(part, declared);
        if (tokens && !dimensions.spread(*tensor, i)) {
            packed = !part.some_queries;
            move(&tensor->offset, distance(tokens->first, tensor->stride[i]));
            tensor->shape[i] = tokens->each;
            move(&between, distance(tokens->each, tensor->stride[i]));
        }
    }
    if (batch >= 0 && packed) {
        tensor->shape[batch] = part.count;
        tensor->stride[batch] = between;
    } else if (batch >= 0 && !dimensions.spread(*tensor, batch)) {
        move(&tensor->offset, distance(part.first, tensor->stride[batch]));
        tensor->shape[batch] = part.count;
    }
}

} // namespace

PartOfCall::PartOfCall(const KernelTable &kernel, const polyhead_args &args, const Part &part) noexcept : args_(args) {
    std::copy_n(args.expression_tensors, kernel.num_declarations, expression_tensors_);
    args_.expression_tensors = expression_tensors_;
    std::copy_n(args.expression_gradients, kernel.num_gradients, expression_gradients_);
    args_.expression_gradients = expression_gradients_;
    args_.cu_seqlens_q = args_.cu_seqlens_kv = polyhead_tensor{};
    for_each_tensor(kernel, &args_, expression_tensors_, expression_gradients_, [&](polyhead_tensor *tensor, const Dimensions &dimensions) {
        if (!absent(*tensor)) {
            take(tensor, dimensions, part);
        }
    });
    if (part.some_queries && kernel.problem.position_offsets) {
        keep_positions(kernel.problem, args, part);
    }
}

// A query of the part is as far from the first, or the last, query of its call as the offset then says.
void PartOfCall::keep_positions(const polyhead_problem &problem, const polyhead_args &whole, const Part &part) noexcept {
    const int64_t all = whole.query.shape[whole.query.rank - 2],
                  before = absent(whole.position_offsets) ? 0 : integer_at(whole.position_offsets, part.first);
    const int64_t moved = part.queries.first - (counts_from_end(problem, whole) ? all - part.queries.each : 0);
    offset_ = static_cast<int32_t>(before + moved);
    args_.position_offsets = {&offset_, POLYHEAD_I32, 1, {1}, {1}, nullptr, 0};
}

bool can_divide_queries(const polyhead_problem &p, const polyhead_args &args) noexcept {
    const bool own = computes_out(p) && !attends_itself(p), expression = p.expression && p.expression[0];
    return own && p.seq_len_q == 0 && !expression && (!knows_positions(p) || (p.position_offsets && !args.position_offsets.device));
}

const char *summed_result(const KernelTable &kernel, const polyhead_args &args, const CallShape &shape) noexcept {
    const auto divided = [&](const polyhead_tensor &tensor, const Dimensions &dimensions) {
        bool found = shape.batch <= 1;
        for (int i = 0; i < dimensions.of(tensor); ++i) {
            const int32_t declared = dimensions.at(tensor, i);
            found = found || (!dimensions.spread(tensor, i) && (declared == B || is_packed(declared, shape)));
        }
        return found;
    };
    for (const TensorRow &row : kernel.tensors &result_rows) {
        if (!divided(args.*row.tensor, Dimensions(row, kernel.problem))) {
            return row.name;
        }
    }
    for (int32_t i = 0; i < kernel.num_gradients; ++i) {
        const int32_t declared = kernel.gradients[i];
        if (!divided(args.expression_gradients[i], Dimensions(kernel.declarations[declared]))) {
            return kernel.gradient_name(declared);
        }
    }
    return nullptr;
}

bool can_be_batched(const KernelTable &kernel, const polyhead_args &args, const CallShape &shape) noexcept {
    bool can = true;
    for_each_tensor(kernel, &args, args.expression_tensors, args.expression_gradients,
                    [&](const polyhead_tensor *tensor, const Dimensions &dimensions) {
                        bool batch = false, packed = false;
                        for (int i = 0; i < dimensions.of(*tensor); ++i) {
                            const int32_t declared = dimensions.at(*tensor, i);
                            batch = batch || declared == B;
                            packed = packed || (!dimensions.spread(*tensor, i) && is_packed(declared, shape));
                        }
                        can = can && (absent(*tensor) || batch || !packed);
                    });
    return can;
}

} // namespace polyhead::runtime
