// Attention of one row of one head: scores, modifiers, masks, softmax, in the order of the interface.
#ifndef POLYHEAD_INSTRUMENTS_REFERENCE_ROW_H
#define POLYHEAD_INSTRUMENTS_REFERENCE_ROW_H

#include <cmath>
#include <cstdint>
#include <vector>

#include "reference.h"
#include "reference_matrix.h"

namespace polyhead::test {

// Key and value of one head: key transposed to [d][n] so that one query uses all keys in a contiguous loop.
template <class Real> struct HeadKeys {
    Matrix<Real> key_transposed, value;
    std::vector<double> max_value; // largest |value| of each key
    HeadKeys(int64_t keys, int64_t head_dim, int64_t head_dim_v)
        : key_transposed(head_dim, keys), value(keys, head_dim_v), max_value(static_cast<size_t>(keys), 0.0) {}
    int64_t keys() const { return value.rows; }
    void find_max_values();
};

// The results of a row beside its entries of out.
template <class Real> struct RowResult {
    Real lse;
    double max_value; // largest |value| that the row attends to, times |gate|
    double largest;   // absolute value of the largest logit, the sink included; 0 for a row that sees no key
    double rounding;  // change of a weight, relative, when logits are rounded to f32 twice: for the sum and for the weight
    double spread;    // sum of weight * (1 - weight): 0 where one key has all the weight, up to 1 where many share it
    double products;  // root of the sum over keys of (weight * largest |value| of the key)^2, times |gate|
    double of_heads;  // what rounding each entry of query and key by a part of itself brings into a logit, as a multiple of this part;
                      // mean over keys, by their weights
    bool empty;       // it sees no key
    std::vector<Real> scores; // of the stage that the problem has as an output; empty if none
    std::vector<Real> weights;
};

// What gradients take of a row.
template <class Real> struct RowWeights {
    std::vector<uint8_t> seen;
    std::vector<Real> weights; // exp(logit - lse), of a key that is not seen 0
    std::vector<Real> slopes;  // derivative of the logit by the scaled score: of softcap and expression
    std::vector<Real> scores;  // what the expression reads, where there is one
    std::vector<Real> kinks;   // how far a slope jumps where a score is rounded to f32: where an expression has two branches
    bool empty;                // it sees no key
    double rounding;           // change of a weight, relative, when its logit is rounded to f32
};

// Evaluates rows of a call one after another; keeps its vectors between them.
template <class Real> class RowAttention {
public:
    // Scores, probs and out are rounded to a 16-bit storage type. The sums of scores begin at a quarter of head_dim.
    RowAttention(const Problem &problem, const polyhead_args &args, int32_t storage, int first_quarter);

    // Rotates the leading entries of one head of query (row q of batch row b) or key (key n), where the problem has rope.
    void rotate_query(Real *head, int64_t b, int64_t q) const;
    void rotate_key(Real *head, int64_t b, int64_t n) const;
    // Gradients of the rotated entries become those of the entries before it.
    void rotate_query_back(Real *gradient, int64_t b, int64_t q) const;
    void rotate_key_back(Real *gradient, int64_t b, int64_t n) const;
    // Norms of the heads of one token, or of one head, before rotation: `count` entries in all.
    void normalise_query(Real *heads, int64_t count) const;
    void normalise_key(Real *heads, int64_t count) const;
    void normalise_value(Real *heads, int64_t count) const;
    // The entries of one head after its norm, without the numbers of the norm; nothing without a norm.
    std::vector<Real> normalised_query(const Real *x) const { return normalised(query_norm(), x); }
    std::vector<Real> normalised_key(const Real *x) const { return normalised(key_norm(), x); }
    // Gradients of the entries after the norm of one head become those of the entries x before it. Returns by how much an error of an entry
    // may have grown.
    Real normalise_query_back(const Real *x, Real *gradient) const;
    Real normalise_key_back(const Real *x, Real *gradient) const;
    Real normalise_value_back(const Real *x, Real *gradient) const;
    // out = gate * softmax(logits) value; a row that sees no key gives 0.
    const RowResult<Real> &attend(const Real *query, const HeadKeys<Real> &keys, int64_t b, int64_t h, int64_t q, Real *out);
    // The row that attend() left, multiplied by the sigmoid of its logits: one, or one of each entry.
    const RowResult<Real> &gated(const std::vector<Real> &logits, Real *out);
    // The weights of a row by the lse of an earlier call. In a 16-bit storage type scores are rounded, up to 5e5 by more than a thousand:
    // there the weights are those of the rounded scores by their own lse. Weights are not rounded.
    const RowWeights<Real> &weigh(const Real *query, const HeadKeys<Real> &keys, int64_t b, int64_t h, int64_t q, Real lse);
    Real scale() const { return scale_; }

private:
    struct Norm {
        int32_t kind; // polyhead_norm
        const polyhead_tensor *weight, *bias;
        Real factor(int64_t i) const; // entry i is multiplied by it
        Real added(int64_t i) const;
    };
    // Of the entries of one head, or of all heads: their mean, where the norm takes it, and one over the root of the mean square.
    struct Measure {
        Real mean, factor;
    };
    Measure measure(const Norm &norm, int64_t width, const Real *x) const;
    Norm query_norm() const { return {p_.query_norm, &args_.query_norm_weight, &args_.query_norm_bias}; }
    Norm key_norm() const { return {p_.key_norm, &args_.key_norm_weight, &args_.key_norm_bias}; }
    Norm value_norm() const { return {p_.value_norm != 0 ? POLYHEAD_RMS_NORM : POLYHEAD_NO_NORM, nullptr, nullptr}; }
    void normalise(const Norm &norm, int64_t width, Real *heads, int64_t count) const;
    std::vector<Real> normalised(const Norm &norm, const Real *x) const;
    Real normalise_back(const Norm &norm, int64_t width, const Real *x, Real *gradient) const;
    // Turns by the angle of a position, or back.
    enum class Turn { forth, back };
    void rotate(Real *head, const polyhead_tensor &positions, int64_t b, int64_t i, int64_t otherwise, Turn turn) const;
    void turn_query(Real *head, int64_t b, int64_t q, Turn turn) const;
    void turn_key(Real *head, int64_t b, int64_t n, Turn turn) const;
    void make_logits(const Real *query, const HeadKeys<Real> &keys, int64_t b, int64_t h, int64_t q);
    void apply_expression(int64_t b, int64_t h, int64_t q);
    void keep_scores(int32_t stage);
    // Of the probs that softmax() left.
    double rounding_of_heads(const Real *query, const HeadKeys<Real> &keys) const;
    // Turns the logits into probs; false when no key is seen.
    bool softmax(int64_t h);

    const Problem &p_;
    const polyhead_args &args_;
    int32_t storage_;
    int64_t first_entry_; // of the sums of scores
    Real scale_;
    std::vector<Real> logits_, slopes_, kinks_, scores_;
    std::vector<uint8_t> seen_;
    Real row_sum_ = 0;
    RowResult<Real> result_;
    RowWeights<Real> weights_;
};

template <class Real> void round_all(Real *values, int64_t count, int32_t storage);
template <class Real> Real sigmoid(Real x) {
    const Real power = std::exp(-std::abs(x));
    return (x >= 0 ? Real(1) : power) / (Real(1) + power);
}

extern template class RowAttention<double>;
extern template class RowAttention<float>;
extern template struct HeadKeys<double>;
extern template struct HeadKeys<float>;
extern template void round_all(double *, int64_t, int32_t);
extern template void round_all(float *, int64_t, int32_t);

} // namespace polyhead::test
#endif
