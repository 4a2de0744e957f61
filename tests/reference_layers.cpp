// The reference of whole layers: composed from linear and sdpa, packed against separate weights, biases, cross-attention.
#include <algorithm>
#include <cmath>

#include "instruments/calls/dense.h"
#include "instruments/calls/inputs.h"
#include "instruments/calls/problems.h"
#include "instruments/reference/visibility.h"
#include "support/catch.h"
#include "support/difference.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// y = x W^T + b in double, by the definition, one element at a time.
std::vector<double> project(const polyhead_tensor &x, const polyhead_tensor &weight, const polyhead_tensor &bias) {
    std::vector<double> y;
    for (int64_t b = 0; b < x.shape[0]; b++) {
        for (int64_t t = 0; t < x.shape[1]; t++) {
            for (int64_t n = 0; n < weight.shape[0]; n++) {
                double sum = bias.data == nullptr ? 0.0 : static_cast<double>(*element(bias, n));
                for (int64_t k = 0; k < weight.shape[1]; k++) {
                    sum += static_cast<double>(*element(x, b, t, k)) * static_cast<double>(*element(weight, n, k));
                }
                y.push_back(sum);
            }
        }
    }
    return y;
}

// The layer written as one loop nest over the definition, in double: no shared code with the reference but key_range.
std::vector<double> layer_by_definition(const Problem &p, const polyhead_args &args, const polyhead_weight_tensors &w) {
    const polyhead_tensor &xk = p.cross != 0 ? args.key : args.query, &xv = p.cross != 0 ? args.value : args.query;
    const std::vector<double> query = project(args.query, w.query, w.query_bias), key = project(xk, w.key, w.key_bias),
                              value = project(xv, w.value, w.value_bias);
    const int64_t batch = args.query.shape[0], rows = args.query.shape[1], keys = xk.shape[1], group = p.num_heads / p.num_kv_heads;
    std::vector<double> out;
    for (int64_t b = 0; b < batch; b++) {
        for (int64_t q = 0; q < rows; q++) {
            std::vector<double> concat;
            for (int64_t h = 0; h < p.num_heads; h++) {
                std::vector<double> sums(static_cast<size_t>(p.head_dim_v), 0.0);
                double total = 0;
                for (int64_t n = key_range(p, args, b, q).begin; n < key_range(p, args, b, q).end; n++) {
                    double score = 0;
                    for (int64_t d = 0; d < p.head_dim; d++) {
                        score += query[(b * rows + q) * p.num_heads * p.head_dim + h * p.head_dim + d] *
                                 key[(b * keys + n) * p.num_kv_heads * p.head_dim + h / group * p.head_dim + d];
                    }
                    const double weight = std::exp(score / std::sqrt(static_cast<double>(p.head_dim)));
                    total += weight;
                    for (int64_t d = 0; d < p.head_dim_v; d++) {
                        sums[d] += weight * value[(b * keys + n) * p.num_kv_heads * p.head_dim_v + h / group * p.head_dim_v + d];
                    }
                }
                for (double sum : sums) {
                    concat.push_back(total == 0 ? 0.0 : sum / total);
                }
            }
            for (int64_t n = 0; n < p.embed_dim; n++) {
                double sum = w.out_bias.data == nullptr ? 0.0 : static_cast<double>(*element(w.out_bias, n));
                for (size_t k = 0; k < concat.size(); k++) {
                    sum += concat[k] * static_cast<double>(*element(w.out_proj, n, static_cast<int64_t>(k)));
                }
                out.push_back(sum);
            }
        }
    }
    return out;
}

} // namespace

TEST_CASE("reference: a layer equals its definition, element by element") {
    Problem p = mha_problem(12, 4, 2, 5, 3);
    p.bias = GENERATE(0, 1);
    p.causal = GENERATE(POLYHEAD_NOT_CAUSAL, POLYHEAD_BOTTOM_RIGHT);
    p.cross = GENERATE(0, 1);
    p.kv_lengths = 1;
    Shape shape;
    shape.batch = 2;
    shape.seq_len_q = 6;
    shape.seq_len_kv = p.cross != 0 ? 9 : 6;
    shape.lengths = {static_cast<int32_t>(shape.seq_len_kv), 3};
    shape.query = Layout::bshd_padded;
    if (p.cross != 0) {
        p.kdim = 7;
        p.vdim = 10;
    }
    const LayerWeights weights(p, 3, true);
    const Inputs inputs(p, shape);
    CHECK(largest_difference(truth(p, inputs.args(), weights.tensors()).out, layer_by_definition(p, inputs.args(), weights.tensors())) <
          1e-12);
}

TEST_CASE("reference: packed weights are the separate ones stacked: query, key, value") {
    Problem p = mha_problem(8, 2, 1, 4, 3);
    p.bias = 1;
    Shape shape;
    shape.seq_len_q = shape.seq_len_kv = 5;
    const Inputs inputs(p, shape);
    const LayerWeights packed(p, 4);
    polyhead_weight_tensors separate = packed.tensors();
    const auto rows = [](const polyhead_tensor &all, int64_t first, int64_t count) {
        polyhead_tensor part = all;
        part.data = element(all, first);
        part.shape[0] = count;
        return part;
    };
    separate.query = rows(separate.in_proj, 0, 8);
    separate.key = rows(separate.in_proj, 8, 4);
    separate.value = rows(separate.in_proj, 12, 3);
    separate.query_bias = rows(separate.in_bias, 0, 8);
    separate.key_bias = rows(separate.in_bias, 8, 4);
    separate.value_bias = rows(separate.in_bias, 12, 3);
    separate.in_proj = separate.in_bias = polyhead_tensor{};
    CHECK(truth(p, inputs.args(), packed.tensors()).out == truth(p, inputs.args(), separate).out);
}

TEST_CASE("reference: a layer of one head with identity weights is bare attention") {
    const Problem layer = mha_problem(6, 1), bare = sdpa_problem(1, 6);
    Random random(5);
    const std::vector<float> x = normal_vector(random, 7 * 6);
    std::vector<float> in(18 * 6, 0.0f), out(36, 0.0f);
    for (size_t i = 0; i < 18; i++) {
        in[i * 6 + i % 6] = 1.0f;
        out[i % 6 * 7] = 1.0f;
    }
    polyhead_args args = polyhead_args_of(POLYHEAD_MHA);
    args.query = dense(x, {1, 7, 6});
    polyhead_weight_tensors weights = polyhead_weight_tensors_of();
    weights.in_proj = dense(in, {18, 6});
    weights.out_proj = dense(out, {6, 6});
    const Answer<double> a = truth(layer, args, weights), b = truth(bare, sdpa_args(bare, 1, x, x, x));
    CHECK(a.out == b.out);
    CHECK(a.lse == b.lse);
}

TEST_CASE("reference: a bias on all keys changes no output of a layer") {
    Problem p = mha_problem(8, 2);
    p.bias = 1;
    Shape shape;
    shape.seq_len_q = shape.seq_len_kv = 6;
    const Inputs inputs(p, shape);
    const LayerWeights weights(p, 6);
    polyhead_weight_tensors other = weights.tensors();
    std::vector<float> bias(24);
    for (int64_t n = 0; n < 24; n++) {
        bias[static_cast<size_t>(n)] = *element(other.in_bias, n) + (n >= 8 && n < 16 ? 2.0f : 0.0f);
    }
    other.in_bias = dense(bias, {24});
    CHECK(largest_difference(truth(p, inputs.args(), weights.tensors()).out, truth(p, inputs.args(), other).out) < 1e-6);
}
