// Inputs of gradients: what the forward call wrote, the gradient of its result, and poison in rows of queries.
#include <algorithm>
#include <cmath>
#include <limits>

#include "../../contract/problem.h"
#include "../reference/expressions.h"
#include "../reference/reference.h"
#include "inputs.h"
#include "poison.h"
#include "problems.h"

namespace polyhead::test {

namespace {

// Outputs must not share elements.
Layout apart(Layout layout) {
    return layout == Layout::shared ? Layout::bhsd : layout;
}

Tensor by_heads(DType dtype, const Shape &s, Layout layout, int64_t heads, int64_t length, int64_t dim) {
    return make_tensor(dtype, {s.batch, heads, length, dim}, head_strides(apart(layout), heads, length, dim), s.place);
}

} // namespace

// Layouts other than those of the tensors that they are gradients of.
void Inputs::make_gradient_outputs(const Problem &p) {
    const Shape &s = shape_;
    const DType dtype = static_cast<DType>(p.dtype);
    outputs_.add(&polyhead_args::grad_query, by_heads(dtype, s, s.out, p.num_heads, s.seq_len_q, p.head_dim), &args_);
    outputs_.add(&polyhead_args::grad_key, by_heads(dtype, s, s.value, p.num_kv_heads, s.seq_len_kv, p.head_dim), &args_);
    if (p.value_in_key == 0) {
        outputs_.add(&polyhead_args::grad_value, by_heads(dtype, s, s.key, p.num_kv_heads, s.seq_len_kv, p.head_dim_v), &args_);
    }
}

// In the shapes of what they are gradients of, or, where that is left out, in one that it may have.
void Inputs::make_modifier_gradients(const Problem &p) {
    const int64_t q = (p.score_bias_broadcast & POLYHEAD_BROADCAST_Q) != 0 ? 1 : shape_.seq_len_q,
                  kv = (p.score_bias_broadcast & POLYHEAD_BROADCAST_KV) != 0 ? 1 : shape_.seq_len_kv;
    struct Wanted {
        int32_t wanted;
        polyhead_tensor polyhead_args::*of, polyhead_args::*gradient;
        int32_t dtype;
        std::vector<int64_t> otherwise;
    };
    using Tensor = polyhead_tensor polyhead_args::*;
    const auto of_norm = [&](int32_t wanted, Tensor of, Tensor gradient) {
        return Wanted{wanted, of, gradient, POLYHEAD_F32, {p.head_dim}};
    };
    const auto layer = [](int32_t wanted, int32_t norm) { return norm == POLYHEAD_LAYER_NORM ? wanted : 0; };
    const Wanted all[] = {
        {p.grad_score_bias,
         &polyhead_args::score_bias,
         &polyhead_args::grad_score_bias,
         contract::additive_dtype(p),
         {shape_.batch, p.num_heads, q, kv}},
        {p.grad_alibi, &polyhead_args::alibi_slopes, &polyhead_args::grad_alibi_slopes, POLYHEAD_F32, {p.num_heads}},
        {p.grad_sinks, &polyhead_args::sinks, &polyhead_args::grad_sinks, POLYHEAD_F32, {p.num_heads}},
        {p.grad_gate, &polyhead_args::gate, &polyhead_args::grad_gate, p.dtype, {}},
        of_norm(p.grad_query_norm, &polyhead_args::query_norm_weight, &polyhead_args::grad_query_norm_weight),
        of_norm(layer(p.grad_query_norm, p.query_norm), &polyhead_args::query_norm_bias, &polyhead_args::grad_query_norm_bias),
        of_norm(p.grad_key_norm, &polyhead_args::key_norm_weight, &polyhead_args::grad_key_norm_weight),
        of_norm(layer(p.grad_key_norm, p.key_norm), &polyhead_args::key_norm_bias, &polyhead_args::grad_key_norm_bias)};
    const int64_t gap = shape_.out == Layout::bhsd_padded || shape_.out == Layout::bshd_padded ? 3 : 0;
    for (const auto &one : all) {
        if (one.wanted == 0) {
            continue;
        }
        const polyhead_tensor &of = args_.*one.of;
        const std::vector<int64_t> shape = of.rank != 0 ? std::vector<int64_t>(of.shape, of.shape + of.rank) : one.otherwise;
        std::vector<int64_t> padded = shape;
        padded.back() += gap;
        outputs_.add(one.gradient, make_tensor(static_cast<DType>(one.dtype), shape, dense_strides(padded), shape_.place), &args_);
    }
}

// Dense, or with gaps between rows.
void Inputs::make_expression_gradients(const Problem &p) {
    const ExpressionCase *const expression = is_backward(p) ? expression_of(p) : nullptr;
    for (size_t i = 0; expression != nullptr && i < expression->gradients.size(); i++) {
        const polyhead_tensor &of = args_.expression_tensors[expression->gradients[i]];
        const std::vector<int64_t> shape(of.shape, of.shape + of.rank);
        std::vector<int64_t> padded = shape;
        padded.back() += shape_.out == Layout::bhsd_padded || shape_.out == Layout::bshd_padded ? 3 : 0;
        outputs_.add_expression_gradient(make_tensor(DType::f32, shape, dense_strides(padded), shape_.place), &args_);
    }
}

// Of one row the poison is in query, in out, in grad_out or in all of them.
void Inputs::poison_queries(const Problem &p) {
    if ((!shape_.poison && shape_.poison_query < 0) || num_rows(args_) == 0) {
        return;
    }
    nan_queries_.assign(static_cast<size_t>(shape_.batch * p.num_heads * num_rows(args_)), 0);
    const bool in_query = shape_.seed % 4 <= 1;
    std::vector<uint8_t> seen;
    for_each_row(query_.view, [&](float *row, int64_t b, int64_t h, int64_t q) {
        find_seen(p, args_, b, h, q, seen);
        const bool empty = shape_.poison && std::none_of(seen.begin(), seen.end(), [](uint8_t one) { return one != 0; });
        if (q != shape_.poison_query && !empty) {
            return;
        }
        nan_queries_[static_cast<size_t>((b * p.num_heads + h) * num_rows(args_) + q)] = 1;
        if (in_query && q == shape_.poison_query) {
            std::fill_n(row, p.head_dim, std::numeric_limits<float>::quiet_NaN());
        } else if (in_query) {
            poison_row(row, p.head_dim, q, p.dtype);
        }
    });
}

// Of the forward reference, rounded as a kernel would store it.
void Inputs::make_forward_results(const Problem &p) {
    const Shape &s = shape_;
    const int64_t rows = s.seq_len_q, gap = s.out == Layout::bhsd_padded || s.out == Layout::bshd_padded ? 3 : 0;
    const Answer<double> forward = evaluate<double>(p, reference_args_, {}, all_rows(p, reference_args_));
    out_ = by_heads(DType::f32, s, s.query, p.num_heads, rows, p.head_dim_v);
    grad_out_ = by_heads(DType::f32, s, s.out, p.num_heads, rows, p.head_dim_v);
    lse_ = make_tensor(DType::f32, {s.batch, p.num_heads, rows}, {p.num_heads * (rows + gap) + gap, rows + gap, 1}, s.place);
    Random random(s.seed ^ 0x6772616473u);
    fill_normal(grad_out_, random, 1.0f);
    const auto poisoned = [&](size_t row) { return !nan_queries_.empty() && nan_queries_[row] != 0; };
    size_t row = 0;
    for_each_row(lse_.view, [&](float *values, int64_t b, int64_t h, int64_t) {
        for (int64_t q = 0; q < rows; q++, row++) {
            // EXCLUDED: lse of a row whose keys are all at a sentinel of -1e38: it has lost their number, so that no weight can be made of
            // it (requirements, "weights are exp(logit - lse)"). With this one they are 0.
            const bool lost = std::isfinite(forward.lse[row]) && forward.lse[row] < -1e30;
            values[q] = lost ? 0.0f : static_cast<float>(forward.lse[row]);
            const int64_t first = static_cast<int64_t>(row) * p.head_dim_v;
            std::copy_n(forward.out.begin() + first, p.head_dim_v, element(out_.view, b, h, q));
            for (Tensor *tensor : {&out_, &grad_out_}) {
                if (poisoned(row) && s.seed % 4 != 0 && s.seed % 4 != (tensor == &out_ ? 2u : 3u)) {
                    continue; // the poison is in another tensor
                }
                if (poisoned(row) && q == s.poison_query) {
                    std::fill_n(element(tensor->view, b, h, q), p.head_dim_v, std::numeric_limits<float>::quiet_NaN());
                } else if (poisoned(row)) {
                    poison_row(element(tensor->view, b, h, q), p.head_dim_v, q, p.dtype);
                }
            }
        }
    });
    for (auto [tensor, stored, which] :
         {std::tuple(&out_, &stored_out_, &polyhead_args::out), std::tuple(&grad_out_, &stored_grad_out_, &polyhead_args::grad_out),
          std::tuple(&lse_, static_cast<Tensor *>(nullptr), &polyhead_args::lse)}) {
        args_.*which = reference_args_.*which = tensor->view;
        if (stored != nullptr) {
            store(p.dtype, *tensor, *stored, args_.*which);
        } else {
            tensor->memory.make_read_only();
        }
    }
}

} // namespace polyhead::test
