// Straight loops over the gradients of one key/value head.
#include "gradients.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "../calls/problems.h"
#include "../calls/random.h"
#include "modifier_gradients.h"
#include "reference_heads.h"
#include "reference_matrix.h"
#include "reference_row.h"
#include "visibility.h"

namespace polyhead::test {

namespace {

template <class Real> double largest_of(const Real *values, int64_t count) {
    double largest = 0;
    for (int64_t i = 0; i < count; i++) {
        largest = std::max(largest, std::abs(static_cast<double>(values[i])));
    }
    return largest;
}

template <class Real> double norm_of(const Real *values, int64_t count) {
    double squares = 0;
    for (int64_t i = 0; i < count; i++) {
        squares += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
    return std::sqrt(squares);
}

// One key/value head after another; the vectors are those of the head at work.
template <class Real> class HeadGradients {
public:
    HeadGradients(const Problem &p, const polyhead_args &args, const Evaluation &how, Gradients<Real> &answer, Modifiers modifiers)
        : p_(p), args_(args), how_(how), answer_(answer), modifiers_(p, args, modifiers == Modifiers::yes, answer.modifiers),
          attention_(p, args, how.storage, how.first_quarter), rows_(num_rows(args)), keys_(num_keys(p, args)),
          rounds_(is_16_bit(how.storage)), head_(0, 0, 0), key_(0, 0), value_transposed_(0, 0), grad_key_(0, 0), grad_value_(0, 0) {}

    void evaluate(int64_t b, int64_t h_kv) {
        begin(b, h_kv);
        const int64_t group = p_.num_heads / p_.num_kv_heads;
        for (int64_t h = h_kv * group; h < (h_kv + 1) * group; h++) {
            for (int64_t i = 0; i < rows_; i++) {
                add_row(b, h, (first(rows_) + i) % rows_);
            }
        }
        end(b, h_kv);
    }
    void finish() { modifiers_.finish(); }

private:
    int64_t first(int64_t count) const { return count * how_.first_quarter / 4; }
    double scale() const { return std::abs(static_cast<double>(attention_.scale())); }
    Real rounded(Real value) const { return rounds_ ? Real(round_to(static_cast<float>(value), how_.storage)) : value; }

    void begin(int64_t b, int64_t h_kv) {
        head_ = head_of_call(p_, args_, attention_, b, h_kv, how_);
        key_ = Matrix<Real>(keys_, p_.head_dim);
        value_transposed_ = Matrix<Real>(p_.head_dim_v, keys_);
        grad_key_ = Matrix<Real>(keys_, p_.head_dim);
        grad_value_ = Matrix<Real>(keys_, p_.head_dim_v);
        largest_key_.resize(static_cast<size_t>(keys_));
        norm_of_value_.resize(static_cast<size_t>(keys_));
        of_key_.assign(static_cast<size_t>(keys_), {});
        of_value_.assign(static_cast<size_t>(keys_), {});
        seen_.assign(static_cast<size_t>(keys_), 0);
        for (int64_t n = 0; n < keys_; n++) {
            for (int64_t d = 0; d < p_.head_dim; d++) {
                key_.row(n)[d] = head_.key_transposed.row(d)[n];
            }
            for (int64_t d = 0; d < p_.head_dim_v; d++) {
                value_transposed_.row(d)[n] = head_.value.row(n)[d];
            }
            largest_key_[n] = largest_of(key_.row(n), p_.head_dim);
            norm_of_value_[n] = norm_of(head_.value.row(n), p_.head_dim_v);
        }
    }

    // The gradient of the attention result before its gates.
    void load_gradient(int64_t b, int64_t h, int64_t q) {
        grad_out_.resize(static_cast<size_t>(p_.head_dim_v));
        std::copy_n(element(args_.grad_out, b, h, q), p_.head_dim_v, grad_out_.begin());
        const std::vector<Real> logits = p_.gate != POLYHEAD_NO_GATE ? gate_row<Real>(args_.gate, b, h, q) : std::vector<Real>();
        const Real gate = p_.head_gate != 0 && args_.head_gate.data != nullptr ? Real(*element(args_.head_gate, h)) : Real(1);
        for (size_t d = 0; d < grad_out_.size(); d++) {
            grad_out_[d] *= logits.empty() ? gate : gate * sigmoid(logits[logits.size() == 1 ? 0 : d]);
        }
    }

    // grad_out times out, as both are given.
    Real delta(int64_t b, int64_t h, int64_t q) const {
        const float *const grad = element(args_.grad_out, b, h, q), *const out = element(args_.out, b, h, q);
        Real sum = 0;
        for (int64_t i = 0; i < p_.head_dim_v; i++) {
            const int64_t d = (first(p_.head_dim_v) + i) % p_.head_dim_v;
            sum += Real(grad[d]) * Real(out[d]);
        }
        return sum;
    }

    void add_row(int64_t b, int64_t h, int64_t q) {
        const int64_t row = (b * p_.num_heads + h) * rows_ + q, d_v = p_.head_dim_v;
        query_.resize(static_cast<size_t>(p_.head_dim));
        query_of_call(p_, args_, attention_, b, h, q, how_, query_.data());
        const Real lse = Real(*element(args_.lse, b, h, q));
        const RowWeights<Real> &weights = attention_.weigh(query_.data(), head_, b, h, q, lse);
        answer_.empty[row] = static_cast<uint8_t>(weights.empty);
        if (weights.empty) {
            return;
        }
        load_gradient(b, h, q);
        const Real sum = delta(b, h, q);
        grad_weights_.assign(static_cast<size_t>(keys_), Real(0));
        for (int64_t i = 0; i < d_v; i++) {
            const int64_t d = (first(d_v) + i) % d_v;
            const Real *const value = value_transposed_.row(d);
            for (int64_t n = 0; n < keys_; n++) {
                grad_weights_[n] += grad_out_[d] * value[n];
            }
        }
        grad_logits_.assign(static_cast<size_t>(keys_), Real(0));
        grad_query_.assign(static_cast<size_t>(p_.head_dim), Real(0));
        for (int64_t i = 0; i < keys_; i++) {
            const int64_t n = (first(keys_) + i) % keys_;
            if (weights.seen[n] != 0) {
                const Real weight = rounded(weights.weights[n]);
                grad_logits_[n] = weight * (rounded(grad_weights_[n]) - sum);
                add_pair(n, weight, rounded(grad_logits_[n] * weights.slopes[n]));
            }
        }
        const double of_sums = std::is_same_v<Real, double> ? rounding_of_sums(b, h, q, weights) : 0.0;
        modifiers_.add({b, h, q, lse, sum, weights, grad_logits_, head_, of_sums});
        put_query(b, h, q, std::is_same_v<Real, double> ? add_roundings(weights, of_sums) : Squares());
    }

    void add_pair(int64_t n, Real weight, Real grad_score) {
        seen_[n] = 1;
        Real *const grad_key = grad_key_.row(n), *const grad_value = grad_value_.row(n);
        const Real *const key = key_.row(n);
        for (int64_t d = 0; d < p_.head_dim; d++) {
            grad_query_[d] += grad_score * key[d];
            grad_key[d] += grad_score * query_[d];
        }
        for (int64_t d = 0; d < p_.head_dim_v; d++) {
            grad_value[d] += weight * grad_out_[d];
        }
    }

    void put_query(int64_t b, int64_t h, int64_t q, const Squares &roundings) {
        for (Real &entry : grad_query_) {
            entry *= attention_.scale();
        }
        attention_.rotate_query_back(grad_query_.data(), b, q);
        const float *const before_norm = element(args_.query, b, h, q);
        query_.assign(before_norm, before_norm + p_.head_dim);
        modifiers_.add_query_norm(attention_.normalised_query(query_.data()), grad_query_.data(), roundings.times(scale()));
        const double largest = largest_of(grad_query_.data(), p_.head_dim);
        const auto growth = static_cast<double>(attention_.normalise_query_back(query_.data(), grad_query_.data()));
        roundings.raise(answer_.query.rounding[static_cast<size_t>(b * p_.num_heads + h)], scale(), growth, largest);
        std::copy(grad_query_.begin(), grad_query_.end(),
                  answer_.query.values.begin() + ((b * p_.num_heads + h) * rows_ + q) * p_.head_dim);
    }

    // Of the difference of two sums over entries, for a value as large as the largest.
    double rounding_of_sums(int64_t b, int64_t h, int64_t q, const RowWeights<Real> &weights) const {
        const double of_out = norm_of(element(args_.out, b, h, q), p_.head_dim_v), of_grad = norm_of(grad_out_.data(), p_.head_dim_v);
        double of_value = 0;
        for (int64_t n = 0; n < keys_; n++) {
            of_value = weights.seen[n] != 0 ? std::max(of_value, norm_of_value_[n]) : of_value;
        }
        return f32_unit * of_grad * (of_value + of_out) / std::sqrt(double(p_.head_dim_v));
    }

    // Of the gradient of a query; those of keys and values are added up.
    Squares add_roundings(const RowWeights<Real> &weights, double of_sums) {
        const double largest_grad = largest_of(grad_out_.data(), p_.head_dim_v), largest_query = largest_of(query_.data(), p_.head_dim);
        Squares of_query;
        for (int64_t n = 0; n < keys_; n++) {
            if (weights.seen[n] != 0) {
                const double weight = static_cast<double>(weights.weights[n]), slope = static_cast<double>(weights.slopes[n]);
                const double grad = std::abs(static_cast<double>(grad_logits_[n]) * slope);
                const double of_slope = static_cast<double>(weights.kinks[n]) * std::abs(static_cast<double>(grad_logits_[n]));
                const double change = std::hypot(weight * slope * of_sums, weights.rounding * grad, of_slope);
                of_query.add(change * largest_key_[n], grad * largest_key_[n]);
                of_key_[n].add(change * largest_query, grad * largest_query);
                of_value_[n].add(weight * largest_grad * (weights.rounding + f32_unit), weight * largest_grad);
            }
        }
        return of_query;
    }

    // Keys and values, back through rotation and norms. Of a key that nobody sees neither is looked at.
    void end(int64_t b, int64_t h_kv) {
        const int64_t head = b * p_.num_kv_heads + h_kv;
        std::vector<Real> before_norm;
        for (int64_t n = 0; n < keys_; n++) {
            answer_.unseen[head * keys_ + n] = static_cast<uint8_t>(seen_[n] == 0);
            if (seen_[n] == 0) {
                continue;
            }
            Real *const grad_key = grad_key_.row(n), *const grad_value = grad_value_.row(n);
            for (int64_t d = 0; d < p_.head_dim; d++) {
                grad_key[d] *= attention_.scale();
            }
            attention_.rotate_key_back(grad_key, b, n);
            const float *const key = key_row(p_, args_, args_.key, b, h_kv, n);
            before_norm.assign(key, key + p_.head_dim);
            modifiers_.add_key_norm(attention_.normalised_key(before_norm.data()), grad_key, of_key_[n].times(scale()));
            double largest = largest_of(grad_key, p_.head_dim);
            auto growth = static_cast<double>(attention_.normalise_key_back(before_norm.data(), grad_key));
            of_key_[n].raise(answer_.key.rounding[head], scale(), growth, largest);
            const float *const value = p_.value_in_key != 0 ? key : key_row(p_, args_, args_.value, b, h_kv, n);
            before_norm.assign(value, value + p_.head_dim_v);
            largest = largest_of(grad_value, p_.head_dim_v);
            growth = static_cast<double>(attention_.normalise_value_back(before_norm.data(), grad_value));
            of_value_[n].raise(answer_.value.rounding[head], 1.0, growth, largest);
            for (int64_t d = 0; p_.value_in_key != 0 && d < p_.head_dim_v; d++) {
                grad_key[d] += grad_value[d];
            }
        }
        std::copy(grad_key_.data.begin(), grad_key_.data.end(), answer_.key.values.begin() + head * keys_ * p_.head_dim);
        if (p_.value_in_key == 0) {
            std::copy(grad_value_.data.begin(), grad_value_.data.end(), answer_.value.values.begin() + head * keys_ * p_.head_dim_v);
        }
    }

    const Problem &p_;
    const polyhead_args &args_;
    const Evaluation &how_;
    Gradients<Real> &answer_;
    ModifierSums<Real> modifiers_;
    RowAttention<Real> attention_;
    int64_t rows_, keys_;
    bool rounds_;
    HeadKeys<Real> head_;
    Matrix<Real> key_, value_transposed_, grad_key_, grad_value_;
    std::vector<double> largest_key_, norm_of_value_;
    std::vector<Squares> of_key_, of_value_;
    std::vector<uint8_t> seen_;
    std::vector<Real> query_, grad_out_, grad_weights_, grad_logits_, grad_query_; // of the row at work
};

template <class Real> Gradient<Real> zeros(int64_t heads, int64_t numbers_of_head) {
    return {
        std::vector<Real>(static_cast<size_t>(heads * numbers_of_head), Real(0)), std::vector<Rounding>(static_cast<size_t>(heads)), {}};
}

} // namespace

HeadSet all_heads(const Problem &p, const polyhead_args &args) {
    HeadSet heads(static_cast<size_t>(batch_size(p, args) * p.num_kv_heads));
    for (size_t i = 0; i < heads.size(); i++) {
        heads[i] = static_cast<int64_t>(i);
    }
    return heads;
}

HeadSet sample_heads(const Problem &p, const polyhead_args &args, uint64_t seed, double max_flops) {
    HeadSet heads = all_heads(p, args);
    const double group = p.num_heads / p.num_kv_heads, products = 3.0 * p.head_dim + 2.0 * p.head_dim_v;
    const double head_flops = 2 * group * static_cast<double>(num_rows(args) + 1) * static_cast<double>(num_keys(p, args) + 1) * products;
    Random random(seed);
    for (size_t i = heads.size(); i > 1; i--) {
        std::swap(heads[i - 1], heads[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
    }
    const double wanted = std::max(1.0, max_flops / head_flops);
    heads.resize(wanted < static_cast<double>(heads.size()) ? static_cast<size_t>(wanted) : heads.size());
    return heads;
}

template <class Real>
Gradients<Real> evaluate_gradients(const Problem &p, const polyhead_args &args, const HeadSet &heads, const Evaluation &how,
                                   Modifiers modifiers) {
    const int64_t batch = batch_size(p, args), rows = num_rows(args), keys = num_keys(p, args), q_heads = batch * p.num_heads,
                  kv_heads = batch * p.num_kv_heads;
    Gradients<Real> answer;
    answer.query = zeros<Real>(q_heads, rows * p.head_dim);
    answer.key = zeros<Real>(kv_heads, keys * p.head_dim);
    answer.value = zeros<Real>(kv_heads, p.value_in_key != 0 ? 0 : keys * p.head_dim_v);
    answer.empty.assign(static_cast<size_t>(q_heads * rows), 0);
    answer.unseen.assign(static_cast<size_t>(kv_heads * keys), 0);
    HeadGradients<Real> gradients(p, args, how, answer, modifiers);
    for (int64_t head : heads) {
        gradients.evaluate(head / p.num_kv_heads, head % p.num_kv_heads);
    }
    gradients.finish();
    if (is_16_bit(how.storage)) {
        std::vector<Gradient<Real> *> stored = {&answer.query, &answer.key, &answer.value, &answer.modifiers.gate};
        if (p.additive_in_storage != 0) {
            stored.push_back(&answer.modifiers.score_bias);
        }
        for (Gradient<Real> *one : stored) {
            round_all(one->values.data(), static_cast<int64_t>(one->values.size()), how.storage);
        }
    }
    return answer;
}

template Gradients<double> evaluate_gradients(const Problem &, const polyhead_args &, const HeadSet &, const Evaluation &, Modifiers);
template Gradients<float> evaluate_gradients(const Problem &, const polyhead_args &, const HeadSet &, const Evaluation &, Modifiers);

} // namespace polyhead::test
