// Straight loops over the formula. All inner loops run along contiguous elements, so that compilers vectorise them without
// changing the order of any sum.
#include "reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "half.h"
#include "problems.h"

namespace polyhead::test {

namespace {

constexpr int64_t token_block = 8; // tokens that share one pass over a weight

// A dense matrix of Real.
template <class Real> struct Matrix {
    int64_t rows, columns;
    std::vector<Real> data;
    Matrix(int64_t r, int64_t c) : rows(r), columns(c), data(static_cast<size_t>(r * c), Real(0)) {}
    Real *row(int64_t r) { return data.data() + r * columns; }
    const Real *row(int64_t r) const { return data.data() + r * columns; }
};

// One nn.Linear: the weight transposed to [in][out], and its bias.
template <class Real> struct Linear {
    Matrix<Real> weight;
    std::vector<Real> bias;

    // Rows [first, first + count) of `weight_tensor` [out,in] and of the bias.
    Linear(const polyhead_tensor &weight_tensor, const polyhead_tensor &bias_tensor, int64_t first, int64_t count)
        : weight(weight_tensor.shape[1], count), bias(static_cast<size_t>(count), Real(0)) {
        for (int64_t n = 0; n < count; n++) {
            for (int64_t k = 0; k < weight.rows; k++) {
                weight.row(k)[n] = Real(*element(weight_tensor, first + n, k));
            }
            if (bias_tensor.data != nullptr) {
                bias[n] = Real(*element(bias_tensor, first + n));
            }
        }
    }

    // y[i] = x[i] W^T + b for every row of x.
    Matrix<Real> apply(const Matrix<Real> &x) const {
        Matrix<Real> y(x.rows, weight.columns);
        for (int64_t begin = 0; begin < x.rows; begin += token_block) {
            const int64_t end = std::min(begin + token_block, x.rows);
            for (int64_t k = 0; k < weight.rows; k++) {
                const Real *w = weight.row(k);
                for (int64_t i = begin; i < end; i++) {
                    const Real factor = x.row(i)[k];
                    Real *out = y.row(i);
                    for (int64_t n = 0; n < weight.columns; n++) {
                        out[n] += factor * w[n];
                    }
                }
            }
            for (int64_t i = begin; i < end; i++) {
                for (int64_t n = 0; n < weight.columns; n++) {
                    y.row(i)[n] += bias[n];
                }
            }
        }
        return y;
    }
};

// Key and value of one head: key transposed to [d][n] so that one query meets all keys in a contiguous loop.
template <class Real> struct HeadKeys {
    Matrix<Real> key_transposed, value;
    std::vector<double> max_value; // largest |value| among the first n + 1 keys
    HeadKeys(int64_t keys, int64_t head_dim, int64_t head_dim_v)
        : key_transposed(head_dim, keys), value(keys, head_dim_v), max_value(static_cast<size_t>(keys), 0.0) {}

    void find_max_values() {
        double largest = 0;
        for (int64_t n = 0; n < value.rows; n++) {
            for (int64_t d = 0; d < value.columns; d++) {
                largest = std::max(largest, std::abs(static_cast<double>(value.row(n)[d])));
            }
            max_value[n] = largest;
        }
    }
};

template <class Real> void round_all(Real *values, int64_t count, int32_t storage) {
    for (int64_t i = 0; i < count; i++) {
        values[i] = Real(round_to(static_cast<float>(values[i]), storage));
    }
}

// What all rows of a call share.
template <class Real> struct Softmax {
    Real scale;
    int32_t storage;
};

// out = softmax(scale * query key^T) value over the first `visible` keys; returns lse. A row without keys gives 0 and -inf.
// Scores and probs are rounded to a 16-bit storage type.
template <class Real>
Real attend(const Real *query, const HeadKeys<Real> &keys, int64_t visible, Softmax<Real> softmax, std::vector<Real> &probs, Real *out) {
    const int64_t head_dim_v = keys.value.columns;
    std::fill(out, out + head_dim_v, Real(0));
    if (visible <= 0) {
        return -std::numeric_limits<Real>::infinity();
    }
    probs.assign(static_cast<size_t>(visible), Real(0));
    for (int64_t d = 0; d < keys.key_transposed.rows; d++) {
        const Real *key = keys.key_transposed.row(d);
        for (int64_t n = 0; n < visible; n++) {
            probs[n] += query[d] * key[n];
        }
    }
    Real row_max = -std::numeric_limits<Real>::infinity();
    for (int64_t n = 0; n < visible; n++) {
        probs[n] *= softmax.scale;
    }
    const bool rounds = is_16_bit(softmax.storage);
    if (rounds) {
        round_all(probs.data(), visible, softmax.storage);
    }
    for (int64_t n = 0; n < visible; n++) {
        row_max = std::max(row_max, probs[n]);
    }
    Real row_sum = 0;
    for (int64_t n = 0; n < visible; n++) {
        probs[n] = std::exp(probs[n] - row_max);
        row_sum += probs[n];
    }
    const Real divisor = rounds ? Real(1) : row_sum;
    if (rounds) {
        for (int64_t n = 0; n < visible; n++) {
            probs[n] /= row_sum;
        }
        round_all(probs.data(), visible, softmax.storage);
    }
    for (int64_t n = 0; n < visible; n++) {
        const Real *value = keys.value.row(n);
        for (int64_t d = 0; d < head_dim_v; d++) {
            out[d] += probs[n] * value[d];
        }
    }
    for (int64_t d = 0; d < head_dim_v; d++) {
        out[d] /= divisor;
    }
    return row_max + std::log(row_sum);
}

template <class Real> Softmax<Real> softmax_of(const Problem &problem, const polyhead_args &args, int32_t storage) {
    return {args.has_softmax_scale != 0 ? Real(args.softmax_scale) : Real(1) / std::sqrt(Real(problem.head_dim)), storage};
}

// The most keys that any row of batch row b sees: later ones must not matter, so they are not even read.
int64_t most_visible(const Problem &problem, const polyhead_args &args, int64_t b) {
    return num_rows(args) == 0 ? 0 : std::max<int64_t>(0, visible_keys(problem, args, b, num_rows(args) - 1));
}

template <class Real> Answer<Real> evaluate_sdpa(const Problem &p, const polyhead_args &args, const RowSets &rows, int32_t storage) {
    const int64_t batch = batch_size(p, args), rows_q = num_rows(args);
    Answer<Real> answer;
    answer.out.assign(static_cast<size_t>(batch * p.num_heads * rows_q * p.head_dim_v), Real(0));
    answer.lse.assign(static_cast<size_t>(batch * p.num_heads * rows_q), Real(0));
    answer.max_value.assign(answer.lse.size(), 0.0);
    std::vector<Real> probs, query(static_cast<size_t>(p.head_dim));
    const int64_t group_size = p.num_heads / p.num_kv_heads;
    const Softmax<Real> softmax = softmax_of<Real>(p, args, storage);
    for (int64_t b = 0; b < batch; b++) {
        const int64_t keys = most_visible(p, args, b);
        for (int64_t hkv = 0; hkv < p.num_kv_heads; hkv++) {
            HeadKeys<Real> head(keys, p.head_dim, p.head_dim_v);
            for (int64_t n = 0; n < keys; n++) {
                const float *key = element(args.key, b, hkv, n), *value = element(args.value, b, hkv, n);
                for (int64_t d = 0; d < p.head_dim; d++) {
                    head.key_transposed.row(d)[n] = Real(key[d]);
                }
                std::copy(value, value + p.head_dim_v, head.value.row(n));
            }
            head.find_max_values();
            for (int64_t h = hkv * group_size; h < (hkv + 1) * group_size; h++) {
                for (int64_t q : rows[b * p.num_heads + h]) {
                    const float *row = element(args.query, b, h, q);
                    std::copy(row, row + p.head_dim, query.begin());
                    const int64_t visible = visible_keys(p, args, b, q);
                    const int64_t index = (b * p.num_heads + h) * rows_q + q;
                    answer.lse[index] = attend(query.data(), head, visible, softmax, probs, answer.out.data() + index * p.head_dim_v);
                    answer.max_value[index] = visible > 0 ? head.max_value[visible - 1] : 0.0;
                }
            }
        }
    }
    return answer;
}

// The four projections of a layer, from packed or separate weights.
template <class Real> struct Layer {
    Linear<Real> query, key, value, out;
    static Linear<Real> part(const polyhead_tensor &packed, const polyhead_tensor &packed_bias, const polyhead_tensor &own,
                             const polyhead_tensor &own_bias, int64_t first, int64_t count) {
        return packed.data != nullptr ? Linear<Real>(packed, packed_bias, first, count) : Linear<Real>(own, own_bias, 0, count);
    }
    Layer(const Problem &p, const polyhead_weight_tensors &w)
        : query(part(w.in_proj, w.in_bias, w.query, w.query_bias, 0, p.num_heads * p.head_dim)),
          key(part(w.in_proj, w.in_bias, w.key, w.key_bias, p.num_heads * p.head_dim, p.num_kv_heads * p.head_dim)),
          value(part(w.in_proj, w.in_bias, w.value, w.value_bias, (p.num_heads + p.num_kv_heads) * p.head_dim,
                     p.num_kv_heads * p.head_dim_v)),
          out(w.out_proj, w.out_bias, 0, p.embed_dim) {}
};

// Chosen positions of batch row b of a [B,T,features] tensor.
template <class Real> Matrix<Real> tokens(const polyhead_tensor &tensor, int64_t b, const std::vector<int64_t> &positions) {
    Matrix<Real> x(static_cast<int64_t>(positions.size()), tensor.shape[2]);
    for (size_t i = 0; i < positions.size(); i++) {
        const float *row = element(tensor, b, positions[i]);
        std::copy(row, row + tensor.shape[2], x.row(static_cast<int64_t>(i)));
    }
    return x;
}

template <class Real> HeadKeys<Real> split_head(const Problem &p, const Matrix<Real> &key, const Matrix<Real> &value, int64_t hkv) {
    HeadKeys<Real> head(key.rows, p.head_dim, p.head_dim_v);
    for (int64_t n = 0; n < key.rows; n++) {
        for (int64_t d = 0; d < p.head_dim; d++) {
            head.key_transposed.row(d)[n] = key.row(n)[hkv * p.head_dim + d];
        }
        std::copy_n(value.row(n) + hkv * p.head_dim_v, p.head_dim_v, head.value.row(n));
    }
    head.find_max_values();
    return head;
}

template <class Real>
Answer<Real> evaluate_mha(const Problem &p, const polyhead_args &args, const polyhead_weight_tensors &weights, const RowSets &rows,
                          int32_t storage) {
    const Layer<Real> layer(p, weights);
    const Softmax<Real> softmax = softmax_of<Real>(p, args, storage);
    const polyhead_tensor &key_input = p.cross != 0 ? args.key : args.query, &value_input = p.cross != 0 ? args.value : args.query;
    const int64_t batch = batch_size(p, args), rows_q = num_rows(args), group_size = p.num_heads / p.num_kv_heads;
    Answer<Real> answer;
    answer.out.assign(static_cast<size_t>(batch * rows_q * p.embed_dim), Real(0));
    answer.lse.assign(static_cast<size_t>(batch * p.num_heads * rows_q), Real(0));
    answer.max_value.assign(static_cast<size_t>(batch * rows_q), 0.0);
    std::vector<Real> probs;
    for (int64_t b = 0; b < batch; b++) {
        std::vector<int64_t> positions(static_cast<size_t>(most_visible(p, args, b)));
        for (size_t n = 0; n < positions.size(); n++) {
            positions[n] = static_cast<int64_t>(n);
        }
        const Matrix<Real> query = layer.query.apply(tokens<Real>(args.query, b, rows[b]));
        const Matrix<Real> key = layer.key.apply(tokens<Real>(key_input, b, positions));
        const Matrix<Real> value = layer.value.apply(tokens<Real>(value_input, b, positions));
        Matrix<Real> concat(query.rows, p.num_heads * p.head_dim_v);
        for (int64_t hkv = 0; hkv < p.num_kv_heads; hkv++) {
            const HeadKeys<Real> head = split_head(p, key, value, hkv);
            for (int64_t h = hkv * group_size; h < (hkv + 1) * group_size; h++) {
                for (int64_t i = 0; i < query.rows; i++) {
                    const int64_t q = rows[b][i], visible = visible_keys(p, args, b, q);
                    answer.lse[(b * p.num_heads + h) * rows_q + q] =
                        attend(query.row(i) + h * p.head_dim, head, visible, softmax, probs, concat.row(i) + h * p.head_dim_v);
                    double &largest = answer.max_value[b * rows_q + q];
                    largest = std::max(largest, visible > 0 ? head.max_value[visible - 1] : 0.0);
                }
            }
        }
        const Matrix<Real> out = layer.out.apply(concat);
        for (int64_t i = 0; i < out.rows; i++) {
            std::copy_n(out.row(i), p.embed_dim, answer.out.data() + (b * rows_q + rows[b][i]) * p.embed_dim);
        }
    }
    return answer;
}

template <class Real>
Answer<Real> evaluate_linear(const Problem &p, const polyhead_args &args, const polyhead_weight_tensors &weights, const RowSets &rows) {
    const Linear<Real> linear(weights.out_proj, weights.out_bias, 0, p.out_features);
    Answer<Real> answer;
    answer.out.assign(static_cast<size_t>(num_rows(args) * p.out_features), Real(0));
    answer.max_value.assign(static_cast<size_t>(num_rows(args)), 0.0);
    Matrix<Real> x(static_cast<int64_t>(rows[0].size()), p.embed_dim);
    for (int64_t i = 0; i < x.rows; i++) {
        const float *row = element(args.query, rows[0][i]);
        std::copy(row, row + p.embed_dim, x.row(i));
    }
    const Matrix<Real> y = linear.apply(x);
    for (int64_t i = 0; i < y.rows; i++) {
        std::copy_n(y.row(i), p.out_features, answer.out.data() + rows[0][i] * p.out_features);
    }
    return answer;
}

} // namespace

template <class Real>
Answer<Real> evaluate(const Problem &problem, const polyhead_args &args, const polyhead_weight_tensors &weights, const RowSets &rows,
                      int32_t storage) {
    Answer<Real> answer = is_linear(problem) ? evaluate_linear<Real>(problem, args, weights, rows)
                          : is_mha(problem)  ? evaluate_mha<Real>(problem, args, weights, rows, storage)
                                             : evaluate_sdpa<Real>(problem, args, rows, storage);
    if (is_16_bit(storage)) {
        round_all(answer.out.data(), static_cast<int64_t>(answer.out.size()), storage);
    }
    return answer;
}

template Answer<double> evaluate(const Problem &, const polyhead_args &, const polyhead_weight_tensors &, const RowSets &, int32_t);
template Answer<float> evaluate(const Problem &, const polyhead_args &, const polyhead_weight_tensors &, const RowSets &, int32_t);

} // namespace polyhead::test
