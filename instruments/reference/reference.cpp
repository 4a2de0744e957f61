// The reference of a call: projections, heads, rows.
#include "reference.h"

#include <algorithm>
#include <numeric>

#include "../calls/problems.h"
#include "half.h"
#include "reference_heads.h"
#include "reference_matrix.h"
#include "reference_row.h"
#include "visibility.h"

namespace polyhead::test {

namespace {

// Answers of the right sizes, all 0. rows_of_out: rows that have a max_value.
template <class Real> Answer<Real> make_answer(const Problem &p, const polyhead_args &args, int64_t rows_of_out, int64_t width) {
    const size_t rows = static_cast<size_t>(batch_size(p, args) * p.num_heads * num_rows(args)),
                 keys = static_cast<size_t>(num_keys(p, args));
    Answer<Real> answer;
    answer.out.assign(static_cast<size_t>(rows_of_out * width), Real(0));
    answer.lse.assign(rows, Real(0));
    answer.max_value.assign(static_cast<size_t>(rows_of_out), 0.0);
    answer.empty.assign(rows, 0);
    answer.largest.assign(rows, 0.0);
    answer.rounding.assign(rows, 0.0);
    answer.spread.assign(rows, 0.0);
    answer.products.assign(rows, 0.0);
    answer.of_heads.assign(rows, 0.0);
    answer.scores.assign(p.scores != POLYHEAD_NO_SCORES ? rows * keys : 0, Real(0));
    answer.weights_mean.assign(p.weights_mean != 0 ? rows / static_cast<size_t>(p.num_heads) * keys : 0, Real(0));
    return answer;
}

// All results of row (b, h, q) beside out.
template <class Real>
void take(const Problem &p, const RowResult<Real> &row, int64_t b, int64_t h, int64_t q, int64_t rows_q, Answer<Real> &answer) {
    const int64_t index = (b * p.num_heads + h) * rows_q + q;
    answer.lse[index] = row.lse;
    answer.empty[index] = static_cast<uint8_t>(row.empty);
    answer.largest[index] = row.largest;
    answer.rounding[index] = row.rounding;
    answer.spread[index] = row.spread;
    answer.products[index] = row.products;
    answer.of_heads[index] = row.of_heads;
    if (!answer.scores.empty()) {
        std::copy(row.scores.begin(), row.scores.end(), answer.scores.begin() + index * static_cast<int64_t>(row.scores.size()));
    }
    for (size_t n = 0; !answer.weights_mean.empty() && n < row.weights.size(); n++) {
        answer.weights_mean[static_cast<size_t>(b * rows_q + q) * row.weights.size() + n] += row.weights[n] / Real(p.num_heads);
    }
}

template <class Real> Answer<Real> evaluate_sdpa(const Problem &p, const polyhead_args &args, const RowSets &rows, const Evaluation &how) {
    const int64_t batch = batch_size(p, args), rows_q = num_rows(args), group_size = p.num_heads / p.num_kv_heads;
    Answer<Real> answer = make_answer<Real>(p, args, batch * p.num_heads * rows_q, p.head_dim_v);
    std::vector<Real> query(static_cast<size_t>(p.head_dim));
    RowAttention<Real> attention(p, args, how.storage, how.first_quarter);
    for (int64_t b = 0; b < batch; b++) {
        for (int64_t hkv = 0; hkv < p.num_kv_heads; hkv++) {
            const HeadKeys<Real> head = head_of_call(p, args, attention, b, hkv, how);
            for (int64_t h = hkv * group_size; h < (hkv + 1) * group_size; h++) {
                for (int64_t q : rows[b * p.num_heads + h]) {
                    query_of_call(p, args, attention, b, h, q, how, query.data());
                    const int64_t index = (b * p.num_heads + h) * rows_q + q;
                    Real *const out = answer.out.data() + index * p.head_dim_v;
                    const RowResult<Real> &row = attention.attend(query.data(), head, b, h, q, out);
                    if (p.gate != POLYHEAD_NO_GATE) {
                        attention.gated(gate_row<Real>(args.gate, b, h, q), out);
                    }
                    answer.max_value[index] = row.max_value;
                    take(p, row, b, h, q, rows_q, answer);
                }
            }
        }
    }
    return answer;
}

// Logits of the gate of a head.
int64_t gates_of(const Problem &p) {
    return p.gate == POLYHEAD_GATE_OF_ENTRIES ? p.head_dim_v : p.gate == POLYHEAD_GATE_OF_HEADS ? 1 : 0;
}

// The projections of a layer, from packed or separate weights; those that it does not have have no columns. Without a weight of its own the
// gate is among the columns of query.
template <class Real> struct Layer {
    Linear<Real> query, key, value, out, gate;
    static Linear<Real> part(const polyhead_tensor &packed, const polyhead_tensor &packed_bias, const polyhead_tensor &own,
                             const polyhead_tensor &own_bias, int64_t first, int64_t count) {
        return packed.data != nullptr ? Linear<Real>(packed, packed_bias, first, count) : Linear<Real>(own, own_bias, 0, count);
    }
    static int64_t columns_of_query(const Problem &p, const polyhead_weight_tensors &w) {
        return p.num_heads * (p.head_dim + (w.gate.data != nullptr ? 0 : gates_of(p)));
    }
    static int64_t columns_of_key(const Problem &p) { return p.shared_cache != 0 ? 0 : p.num_kv_heads * p.head_dim; }
    static int64_t columns_of_value(const Problem &p) {
        return p.shared_cache != 0 || p.value_from_key != 0 ? 0 : p.num_kv_heads * p.head_dim_v;
    }
    Layer(const Problem &p, const polyhead_weight_tensors &w)
        : query(part(w.in_proj, w.in_bias, w.query, w.query_bias, 0, columns_of_query(p, w))),
          key(part(w.in_proj, w.in_bias, w.key, w.key_bias, p.num_heads * p.head_dim, columns_of_key(p))),
          value(part(w.in_proj, w.in_bias, w.value, w.value_bias, (p.num_heads + p.num_kv_heads) * p.head_dim, columns_of_value(p))),
          out(w.out_proj, w.out_bias, 0, p.embed_dim),
          gate(w.gate, w.gate_bias, 0, w.gate.data != nullptr ? p.num_heads * gates_of(p) : 0) {}

    // Query of every row of x, and the logits of its gates: [heads][gates_of()] of each.
    std::pair<Matrix<Real>, Matrix<Real>> query_and_gate(const Problem &p, const Matrix<Real> &x, int first_quarter) const {
        Matrix<Real> all = query.apply(x, first_quarter);
        if (gates_of(p) == 0 || gate.weight.columns > 0) {
            return {std::move(all), gate.apply(x, first_quarter)};
        }
        const int64_t gates = gates_of(p), of_head = p.head_dim + gates;
        std::pair<Matrix<Real>, Matrix<Real>> parts{{x.rows, p.num_heads * p.head_dim}, {x.rows, p.num_heads * gates}};
        for (int64_t i = 0; i < x.rows; i++) {
            for (int64_t h = 0; h < p.num_heads; h++) {
                std::copy_n(all.row(i) + h * of_head, p.head_dim, parts.first.row(i) + h * p.head_dim);
                std::copy_n(all.row(i) + h * of_head + p.head_dim, gates, parts.second.row(i) + h * gates);
            }
        }
        return parts;
    }
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

// Key/value head hkv of all tokens of batch row b, keys rotated.
template <class Real>
HeadKeys<Real> split_head(const Problem &p, const RowAttention<Real> &attention, const Matrix<Real> &key, const Matrix<Real> &value,
                          int64_t b, int64_t hkv, const Evaluation &how) {
    HeadKeys<Real> head(key.rows, p.head_dim, p.head_dim_v);
    std::vector<Real> rotated(static_cast<size_t>(p.head_dim));
    for (int64_t n = 0; n < key.rows; n++) {
        std::copy_n(key.row(n) + hkv * p.head_dim, p.head_dim, rotated.begin());
        attention.rotate_key(rotated.data(), b, n);
        round_behind(p.key_norm, rotated.data(), p.head_dim, how);
        for (int64_t d = 0; d < p.head_dim; d++) {
            head.key_transposed.row(d)[n] = rotated[d];
        }
        std::copy_n(value.row(n) + hkv * p.head_dim_v, p.head_dim_v, head.value.row(n));
    }
    head.find_max_values();
    return head;
}

// Key/value head hkv of batch row b in a cache: what was there, and behind it the tokens of the call, keys rotated and, in a 16-bit storage
// type, rounded once more.
template <class Real>
HeadKeys<Real> cached_head(const Problem &p, const polyhead_args &args, const RowAttention<Real> &attention, const Matrix<Real> &key,
                           const Matrix<Real> &value, int64_t b, int64_t hkv, const Evaluation &how, Answer<Real> &answer) {
    const int64_t length = key_length(p, args, b), before = p.shared_cache != 0 ? length : length - key.rows;
    const polyhead_tensor &old_keys = args.key.rank != 0 ? args.key : args.key_cache;
    const polyhead_tensor &old_values = args.value.rank != 0 ? args.value : args.value_cache;
    HeadKeys<Real> head(num_keys(p, args), p.head_dim, p.head_dim_v);
    std::vector<Real> row(static_cast<size_t>(p.head_dim));
    for (int64_t n = 0; n < length; n++) {
        if (n < before) {
            std::copy_n(key_row(p, args, old_keys, b, hkv, n), p.head_dim, row.begin());
            std::copy_n(key_row(p, args, old_values, b, hkv, n), p.head_dim_v, head.value.row(n));
        } else {
            std::copy_n(key.row(n - before) + hkv * p.head_dim, p.head_dim, row.begin());
            attention.rotate_key(row.data(), b, n);
            if (is_16_bit(how.storage)) {
                round_in_unit(row.data(), p.head_dim, how);
            }
            std::copy_n(value.row(n - before) + hkv * p.head_dim_v, p.head_dim_v, head.value.row(n));
            if (is_16_bit(how.storage)) {
                round_in_unit(head.value.row(n), p.head_dim_v, how);
            }
            answer.new_rows[0].insert(answer.new_rows[0].end(), row.begin(), row.end());
            answer.new_rows[1].insert(answer.new_rows[1].end(), head.value.row(n), head.value.row(n) + p.head_dim_v);
        }
        for (int64_t d = 0; d < p.head_dim; d++) {
            head.key_transposed.row(d)[n] = row[static_cast<size_t>(d)];
        }
    }
    head.find_max_values();
    return head;
}

template <class Real>
Answer<Real> evaluate_mha(const Problem &p, const polyhead_args &args, const polyhead_weight_tensors &weights, const RowSets &rows,
                          const Evaluation &how) {
    const Layer<Real> layer(p, weights);
    const polyhead_tensor &key_input = p.cross != 0 ? args.key : args.query, &value_input = p.cross != 0 ? args.value : args.query;
    const int64_t batch = batch_size(p, args), rows_q = num_rows(args), group_size = p.num_heads / p.num_kv_heads;
    Answer<Real> answer = make_answer<Real>(p, args, batch * rows_q, p.embed_dim);
    const bool all = how.rounded == Rounded::everything;
    RowAttention<Real> attention(p, args, all ? how.storage : POLYHEAD_F32, how.first_quarter);
    const auto round = [&how](Matrix<Real> matrix) {
        if (is_16_bit(how.storage) && how.rounded != Rounded::new_rows) {
            round_in_unit(matrix.data.data(), static_cast<int64_t>(matrix.data.size()), how);
        }
        return matrix;
    };
    std::vector<int64_t> positions(static_cast<size_t>(p.cache != 0 ? rows_q : num_keys(p, args)));
    std::iota(positions.begin(), positions.end(), 0);
    for (int64_t b = 0; b < batch; b++) {
        auto [query, gate] = layer.query_and_gate(p, tokens<Real>(args.query, b, rows[b]), how.first_quarter);
        query = round(std::move(query));
        gate = round(std::move(gate));
        Matrix<Real> key = round(layer.key.apply(tokens<Real>(key_input, b, positions), how.first_quarter));
        Matrix<Real> value =
            p.value_from_key != 0 ? key : round(layer.value.apply(tokens<Real>(value_input, b, positions), how.first_quarter));
        const int64_t gates = gates_of(p);
        for (int64_t i = 0; i < query.rows; i++) {
            attention.normalise_query(query.row(i), query.columns);
            round_before(p.query_norm, query.row(i), query.columns, how);
        }
        for (int64_t n = 0; n < key.rows; n++) {
            attention.normalise_key(key.row(n), key.columns);
            attention.normalise_value(value.row(n), value.columns);
            round_before(p.key_norm, key.row(n), key.columns, how);
            round_if(p.value_norm != 0, value.row(n), value.columns, how);
        }
        Matrix<Real> concat(query.rows, p.num_heads * p.head_dim_v);
        for (int64_t hkv = 0; hkv < p.num_kv_heads; hkv++) {
            const HeadKeys<Real> head = p.cache != 0 ? cached_head(p, args, attention, key, value, b, hkv, how, answer)
                                                     : split_head(p, attention, key, value, b, hkv, how);
            for (int64_t h = hkv * group_size; h < (hkv + 1) * group_size; h++) {
                for (int64_t i = 0; i < query.rows; i++) {
                    const int64_t q = rows[b][i];
                    Real *query_head = query.row(i) + h * p.head_dim;
                    attention.rotate_query(query_head, b, q);
                    round_behind(p.query_norm, query_head, p.head_dim, how);
                    Real *const out = concat.row(i) + h * p.head_dim_v;
                    const RowResult<Real> &row = attention.attend(query_head, head, b, h, q, out);
                    if (gates > 0) {
                        attention.gated(std::vector<Real>(gate.row(i) + h * gates, gate.row(i) + (h + 1) * gates), out);
                    }
                    double &largest = answer.max_value[b * rows_q + q];
                    largest = std::max(largest, row.max_value);
                    take(p, row, b, h, q, rows_q, answer);
                }
            }
        }
        const Matrix<Real> out = layer.out.apply(all ? round(concat) : concat);
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
                      const Evaluation &how) {
    Answer<Real> answer = is_linear(problem) ? evaluate_linear<Real>(problem, args, weights, rows)
                          : is_mha(problem)  ? evaluate_mha<Real>(problem, args, weights, rows, how)
                                             : evaluate_sdpa<Real>(problem, args, rows, how);
    if (is_16_bit(how.storage) && how.rounded == Rounded::everything) {
        round_all(answer.out.data(), static_cast<int64_t>(answer.out.size()), how.storage);
    }
    return answer;
}

template Answer<double> evaluate(const Problem &, const polyhead_args &, const polyhead_weight_tensors &, const RowSets &,
                                 const Evaluation &);
template Answer<float> evaluate(const Problem &, const polyhead_args &, const polyhead_weight_tensors &, const RowSets &,
                                const Evaluation &);

} // namespace polyhead::test
