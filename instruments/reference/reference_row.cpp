// Straight loops over the formula of one row.
#include "reference_row.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "expressions.h"
#include "half.h"
#include "visibility.h"

namespace polyhead::test {

namespace {

// Additive terms below this are this: so finite sentinels take part, and the sum of two of them stays finite.
constexpr double lowest_term = -1.7e38;

// Of [B,T] or [B,S,T].
int64_t index_of(const polyhead_tensor &positions, int64_t b, int64_t direction, int64_t i, int64_t otherwise) {
    if (positions.data == nullptr) {
        return otherwise;
    }
    const int64_t row = b * positions.stride[0] + (positions.rank == 3 ? direction * positions.stride[1] : 0);
    return static_cast<const int32_t *>(positions.data)[row + i * positions.stride[positions.rank - 1]];
}

// Where a pair of a rotation lies, and whose position it takes.
struct Pair {
    int64_t first, second, direction;
};

// Entry by entry, in the order of pairs.
std::vector<Pair> pairs_of(const Problem &p, int64_t count) {
    const bool neighbours = p.rope == POLYHEAD_ROPE_INTERLEAVED || p.rope == POLYHEAD_ROPE_INTERLEAVED_TRAILING;
    const int64_t sections[] = {p.section_1, p.section_2, p.section_3};
    std::vector<Pair> pairs;
    for (int64_t i = 0; i < count; i++) {
        pairs.push_back(neighbours ? Pair{2 * i, 2 * i + 1, 0} : Pair{i, i + count, 0});
    }
    if (p.rope_sections == POLYHEAD_SECTIONS_INTERLEAVED) {
        for (int64_t direction = 1; direction < 3; direction++) {
            for (int64_t j = 0; j < sections[direction]; j++) {
                pairs[size_t(3 * j + direction)].direction = direction;
            }
        }
    } else if (p.rope_sections != POLYHEAD_NO_SECTIONS) {
        int64_t i = 0;
        for (int64_t direction = 0; direction < 3; direction++) {
            const int64_t begin = 2 * i;
            for (int64_t j = 0; j < sections[direction]; j++, i++) {
                const bool apart = p.rope_sections == POLYHEAD_SECTIONS_PARTS && !neighbours;
                pairs[size_t(i)] = apart ? Pair{begin + j, begin + sections[direction] + j, direction}
                                         : Pair{pairs[size_t(i)].first, pairs[size_t(i)].second, direction};
            }
        }
    }
    return pairs;
}

// [H] or [B,H].
float slope_of(const polyhead_tensor &slopes, int64_t b, int64_t h) {
    return slopes.rank == 2 ? *element(slopes, slopes.shape[0] == 1 ? 0 : b, h) : *element(slopes, h);
}

template <class Real> void add_terms(const polyhead_tensor &bias, int64_t b, int64_t h, int64_t q, std::vector<Real> &logits) {
    if (bias.data != nullptr && !logits.empty()) {
        const MaskRow row(bias, b, h, q);
        for (size_t n = 0; n < logits.size(); n++) {
            logits[n] += std::max(Real(row[static_cast<int64_t>(n)]), Real(lowest_term));
        }
    }
}

} // namespace

template <class Real> void round_all(Real *values, int64_t count, int32_t storage) {
    for (int64_t i = 0; i < count; i++) {
        values[i] = Real(round_to(static_cast<float>(values[i]), storage));
    }
}

template <class Real> void HeadKeys<Real>::find_max_values() {
    for (int64_t n = 0; n < value.rows; n++) {
        for (int64_t d = 0; d < value.columns; d++) {
            max_value[n] = std::max(max_value[n], std::abs(static_cast<double>(value.row(n)[d])));
        }
    }
}

template <class Real>
RowAttention<Real>::RowAttention(const Problem &problem, const polyhead_args &args, int32_t storage, int first_quarter)
    : p_(problem), args_(args), storage_(storage), first_entry_(problem.head_dim * first_quarter / 4),
      scale_(args.has_softmax_scale != 0 ? Real(args.softmax_scale) : Real(1) / std::sqrt(Real(problem.head_dim))) {}

// A turn of a table whose numbers are not of length 1 is a matrix; back goes its transposed.
template <class Real>
void RowAttention<Real>::rotate(Real *head, const polyhead_tensor &positions, int64_t b, int64_t i, int64_t otherwise, Turn turn) const {
    const int64_t rotary_dim = p_.rotary_dim > 0 ? p_.rotary_dim : p_.head_dim;
    if (p_.rope >= POLYHEAD_ROPE_INTERLEAVED_TRAILING) {
        head += p_.head_dim - rotary_dim;
    }
    const std::vector<Pair> pairs = pairs_of(p_, rotary_dim / 2);
    for (size_t n = 0; n < pairs.size(); n++) {
        const int64_t position = index_of(positions, b, pairs[n].direction, i, otherwise),
                      row = std::clamp<int64_t>(position, 0, args_.rope_cos.shape[0] - 1);
        const Real cosine = Real(*element(args_.rope_cos, row, static_cast<int64_t>(n))),
                   forth = Real(*element(args_.rope_sin, row, static_cast<int64_t>(n))), sine = turn == Turn::forth ? forth : -forth;
        Real &first = head[pairs[n].first];
        Real &second = head[pairs[n].second];
        const Real x = first, y = second;
        first = x * cosine - y * sine;
        second = y * cosine + x * sine;
    }
}

template <class Real> void RowAttention<Real>::turn_query(Real *head, int64_t b, int64_t q, Turn turn) const {
    if (p_.rope != POLYHEAD_NO_ROPE) {
        rotate(head, args_.positions_q, b, q, std::max<int64_t>(position_of(p_, args_, b, q), 0), turn);
    }
}

template <class Real> void RowAttention<Real>::turn_key(Real *head, int64_t b, int64_t n, Turn turn) const {
    if (p_.rope != POLYHEAD_NO_ROPE) {
        // With a cache only the keys of the call are rotated: positions_kv are theirs.
        const int64_t before = p_.cache != 0 ? key_length(p_, args_, b) - num_rows(args_) : 0;
        rotate(head, args_.positions_kv, b, n - before, n, turn);
    }
}

template <class Real> void RowAttention<Real>::rotate_query(Real *head, int64_t b, int64_t q) const {
    turn_query(head, b, q, Turn::forth);
}

template <class Real> void RowAttention<Real>::rotate_key(Real *head, int64_t b, int64_t n) const {
    turn_key(head, b, n, Turn::forth);
}

template <class Real> void RowAttention<Real>::rotate_query_back(Real *gradient, int64_t b, int64_t q) const {
    turn_query(gradient, b, q, Turn::back);
}

template <class Real> void RowAttention<Real>::rotate_key_back(Real *gradient, int64_t b, int64_t n) const {
    turn_key(gradient, b, n, Turn::back);
}

// Weights are absent, or have a number for each entry that is normalised.
template <class Real> Real RowAttention<Real>::Norm::factor(int64_t i) const {
    const bool given = weight != nullptr && weight->data != nullptr, plus_one = kind == POLYHEAD_RMS_NORM_PLUS_ONE;
    return given ? (plus_one ? Real(1) : Real(0)) + Real(*element(*weight, i)) : Real(1);
}

template <class Real> Real RowAttention<Real>::Norm::added(int64_t i) const {
    return bias != nullptr && bias->data != nullptr ? Real(*element(*bias, i)) : Real(0);
}

template <class Real>
typename RowAttention<Real>::Measure RowAttention<Real>::measure(const Norm &norm, int64_t width, const Real *x) const {
    Real mean = 0, squares = 0;
    for (int64_t i = 0; norm.kind == POLYHEAD_LAYER_NORM && i < width; i++) {
        mean += x[i] / Real(width);
    }
    for (int64_t i = 0; i < width; i++) {
        squares += (x[i] - mean) * (x[i] - mean);
    }
    return {mean, Real(1) / std::sqrt(squares / Real(width) + Real(args_.norm_epsilon))};
}

// Each head of `width` entries by itself, or all of them as one.
template <class Real> void RowAttention<Real>::normalise(const Norm &norm, int64_t width, Real *heads, int64_t count) const {
    for (int64_t first = 0; norm.kind != POLYHEAD_NO_NORM && first < count; first += width) {
        Real *const x = heads + first;
        const Measure of = measure(norm, width, x);
        for (int64_t i = 0; i < width; i++) {
            x[i] = (x[i] - of.mean) * of.factor * norm.factor(i) + norm.added(i);
        }
    }
}

template <class Real> std::vector<Real> RowAttention<Real>::normalised(const Norm &norm, const Real *x) const {
    std::vector<Real> entries(norm.kind == POLYHEAD_NO_NORM ? 0 : static_cast<size_t>(p_.head_dim));
    const Measure of = entries.empty() ? Measure{} : measure(norm, p_.head_dim, x);
    std::transform(x, x + entries.size(), entries.begin(), [&](Real entry) { return (entry - of.mean) * of.factor; });
    return entries;
}

// With y = (x - mean) factor: what gradients change along y, and along the mean of all entries, is lost.
template <class Real> Real RowAttention<Real>::normalise_back(const Norm &norm, int64_t width, const Real *x, Real *gradient) const {
    if (norm.kind == POLYHEAD_NO_NORM) {
        return 1;
    }
    const Measure of = measure(norm, width, x);
    Real mean = 0, along = 0, largest = 0;
    for (int64_t i = 0; i < width; i++) {
        gradient[i] *= norm.factor(i);
        largest = std::max(largest, std::abs(norm.factor(i)));
        mean += norm.kind == POLYHEAD_LAYER_NORM ? gradient[i] / Real(width) : Real(0);
        along += gradient[i] * (x[i] - of.mean) * of.factor / Real(width);
    }
    for (int64_t i = 0; i < width; i++) {
        gradient[i] = of.factor * (gradient[i] - mean - (x[i] - of.mean) * of.factor * along);
    }
    return of.factor * largest;
}

template <class Real> void RowAttention<Real>::normalise_query(Real *heads, int64_t count) const {
    normalise(query_norm(), p_.norm_of_projection != 0 ? count : p_.head_dim, heads, count);
}

template <class Real> void RowAttention<Real>::normalise_key(Real *heads, int64_t count) const {
    normalise(key_norm(), p_.norm_of_projection != 0 ? count : p_.head_dim, heads, count);
}

template <class Real> void RowAttention<Real>::normalise_value(Real *heads, int64_t count) const {
    normalise(value_norm(), p_.head_dim_v, heads, count);
}

template <class Real> Real RowAttention<Real>::normalise_query_back(const Real *x, Real *gradient) const {
    return normalise_back(query_norm(), p_.head_dim, x, gradient);
}

template <class Real> Real RowAttention<Real>::normalise_key_back(const Real *x, Real *gradient) const {
    return normalise_back(key_norm(), p_.head_dim, x, gradient);
}

template <class Real> Real RowAttention<Real>::normalise_value_back(const Real *x, Real *gradient) const {
    return normalise_back(value_norm(), p_.head_dim_v, x, gradient);
}

template <class Real> const RowResult<Real> &RowAttention<Real>::gated(const std::vector<Real> &logits, Real *out) {
    double largest = 0;
    for (int64_t d = 0; d < p_.head_dim_v; d++) {
        const Real gate = sigmoid(logits[logits.size() == 1 ? 0 : static_cast<size_t>(d)]);
        out[d] = result_.empty ? Real(0) : out[d] * gate;
        largest = std::max(largest, static_cast<double>(gate));
    }
    result_.max_value *= largest;
    result_.products *= largest;
    return result_;
}

template <class Real> void RowAttention<Real>::keep_scores(int32_t stage) {
    if (p_.scores == stage) {
        result_.scores = logits_;
    }
}

template <class Real> void RowAttention<Real>::apply_expression(int64_t b, int64_t h, int64_t q) {
    const ExpressionCase *expression = expression_of(p_);
    if (expression == nullptr || expression->score == nullptr) {
        return;
    }
    ExpressionPoint<Real> point = expression_point<Real>(p_, args_, b, h, q);
    scores_ = logits_;
    for (size_t n = 0; n < logits_.size(); n++) {
        point.kv = static_cast<int64_t>(n);
        point.score = logits_[n];
        if (std::isnan(logits_[n])) {
            continue; // a comparison must not make a number of it
        }
        if constexpr (std::is_same_v<Real, double>) {
            logits_[n] = expression->score(point);
            slopes_[n] *= expression->slope(point);
            const double rounding = 1e-6 * std::max(1.0, std::abs(point.score));
            point.score += rounding;
            const double above = expression->slope(point);
            point.score -= 2 * rounding;
            kinks_[n] = std::abs(above - expression->slope(point));
        } else {
            logits_[n] = expression->score_f32(point);
            slopes_[n] *= expression->slope_f32(point);
        }
    }
}

template <class Real> void RowAttention<Real>::make_logits(const Real *query, const HeadKeys<Real> &keys, int64_t b, int64_t h, int64_t q) {
    const int64_t count = keys.keys();
    logits_.assign(static_cast<size_t>(count), Real(0));
    slopes_.assign(static_cast<size_t>(count), Real(1));
    kinks_.assign(static_cast<size_t>(count), Real(0));
    for (int64_t i = 0; i < p_.head_dim; i++) {
        const int64_t d = (first_entry_ + i) % p_.head_dim;
        const Real *key = keys.key_transposed.row(d);
        for (int64_t n = 0; n < count; n++) {
            logits_[n] += query[d] * key[n];
        }
    }
    for (Real &logit : logits_) {
        logit *= scale_;
    }
    if (p_.page_size != 0 || p_.cache != 0) { // keys behind the valid ones lie in no page; to a cache nobody wrote them
        std::fill(logits_.begin() + key_length(p_, args_, b), logits_.end(), Real(0));
    }
    keep_scores(POLYHEAD_SCALED_SCORES);
    if (p_.softcap != 0) {
        const Real cap = Real(args_.softcap);
        for (size_t n = 0; n < logits_.size(); n++) {
            const Real part = std::tanh(logits_[n] / cap);
            logits_[n] = cap * part;
            slopes_[n] = 1 - part * part;
        }
    }
    keep_scores(POLYHEAD_CAPPED_SCORES);
    apply_expression(b, h, q);
    if (p_.alibi != 0 && args_.alibi_slopes.data != nullptr) {
        const Real slope = Real(slope_of(args_.alibi_slopes, b, h));
        const int64_t position = position_of(p_, args_, b, q);
        for (int64_t n = 0; n < count; n++) {
            logits_[n] -= slope * Real(std::abs(position - n));
        }
    }
    if (p_.score_bias != 0) {
        add_terms(args_.score_bias, b, h, q, logits_);
    }
    if (p_.mask == POLYHEAD_ADDITIVE_MASK) {
        add_terms(args_.mask, b, h, q, logits_);
    }
    find_seen(p_, args_, b, h, q, seen_);
    for (int64_t n = 0; n < count; n++) {
        logits_[n] = seen_[n] != 0 ? logits_[n] : -std::numeric_limits<Real>::infinity();
    }
    keep_scores(POLYHEAD_LOGITS);
}

template <class Real> bool RowAttention<Real>::softmax(int64_t h) {
    Real row_max = -std::numeric_limits<Real>::infinity();
    bool any = false;
    if (is_16_bit(storage_)) {
        round_all(logits_.data(), static_cast<int64_t>(logits_.size()), storage_);
    }
    for (size_t n = 0; n < logits_.size(); n++) {
        if (seen_[n] != 0) {
            row_max = std::max(row_max, logits_[n]);
            any = true;
        }
    }
    row_sum_ = 0;
    if (!any) {
        std::fill(logits_.begin(), logits_.end(), Real(0));
        result_.lse = -std::numeric_limits<Real>::infinity();
        return false;
    }
    const bool has_sink = p_.sinks != 0 && args_.sinks.data != nullptr;
    const Real sink = has_sink ? Real(*element(args_.sinks, h)) : Real(0);
    row_max = has_sink ? std::max(row_max, sink) : row_max;
    for (size_t n = 0; n < logits_.size(); n++) {
        logits_[n] = seen_[n] != 0 ? std::exp(logits_[n] - row_max) : Real(0);
        row_sum_ += logits_[n];
    }
    row_sum_ += has_sink ? std::exp(sink - row_max) : Real(0);
    result_.lse = row_max + std::log(row_sum_);
    double spread = 0;
    for (Real prob : logits_) {
        const double weight = static_cast<double>(prob / row_sum_);
        spread += weight * (1 - weight);
    }
    // Next to the lowest sentinels scores vanish in double as well, and logits of 5e5 are made of single products: neither is rounded.
    const double magnitude = std::abs(static_cast<double>(row_max));
    result_.largest = magnitude;
    result_.rounding = magnitude > 1e5 ? 0.0 : 0x1p-23 * magnitude;
    result_.spread = spread;
    return true;
}

template <class Real> double RowAttention<Real>::rounding_of_heads(const Real *query, const HeadKeys<Real> &keys) const {
    std::vector<double> squares(seen_.size(), 0.0);
    for (int64_t d = 0; d < p_.head_dim; d++) {
        const Real *key = keys.key_transposed.row(d);
        for (size_t n = 0; n < squares.size(); n++) {
            const double product = static_cast<double>(query[d]) * key[n];
            squares[n] += seen_[n] != 0 ? 2 * product * product : 0.0;
        }
    }
    double mean = 0;
    for (size_t n = 0; n < squares.size(); n++) {
        mean += squares[n] > 0 ? static_cast<double>(logits_[n] / row_sum_) * std::sqrt(squares[n]) : 0.0;
    }
    return std::abs(static_cast<double>(scale_)) * mean;
}

template <class Real>
const RowResult<Real> &RowAttention<Real>::attend(const Real *query, const HeadKeys<Real> &keys, int64_t b, int64_t h, int64_t q,
                                                  Real *out) {
    const int64_t head_dim_v = p_.head_dim_v;
    make_logits(query, keys, b, h, q);
    result_.empty = !softmax(h);
    result_.max_value = 0;
    result_.largest = result_.empty ? 0 : result_.largest;
    result_.rounding = result_.empty ? 0 : result_.rounding;
    result_.spread = result_.empty ? 0 : result_.spread;
    result_.products = result_.of_heads = 0;
    std::fill(out, out + head_dim_v, Real(0));
    std::vector<Real> &probs = logits_;
    const bool rounds = is_16_bit(storage_), wants_weights = p_.scores == POLYHEAD_WEIGHTS || p_.weights_mean != 0;
    if (wants_weights) {
        result_.weights = probs;
        for (Real &weight : result_.weights) {
            weight = result_.empty ? Real(0) : weight / row_sum_;
        }
        if (p_.scores == POLYHEAD_WEIGHTS) {
            result_.scores = result_.weights;
        }
    }
    if (result_.empty) {
        return result_;
    }
    for (int64_t n = 0; n < keys.keys(); n++) {
        const double product = seen_[n] != 0 ? static_cast<double>(probs[n] / row_sum_) * keys.max_value[n] : 0;
        result_.products += product * product;
    }
    if (std::is_same_v<Real, double> && is_16_bit(p_.dtype)) { // of the truth alone
        result_.of_heads = rounding_of_heads(query, keys);
    }
    if (rounds) {
        for (Real &prob : probs) {
            prob /= row_sum_;
        }
        round_all(probs.data(), static_cast<int64_t>(probs.size()), storage_);
    }
    const Real gate = p_.head_gate != 0 && args_.head_gate.data != nullptr ? Real(*element(args_.head_gate, h)) : Real(1);
    for (int64_t n = 0; n < keys.keys(); n++) {
        if (seen_[n] != 0) {
            const Real *value = keys.value.row(n);
            for (int64_t d = 0; d < head_dim_v; d++) {
                out[d] += probs[n] * value[d];
            }
            result_.max_value = std::max(result_.max_value, keys.max_value[n]);
        }
    }
    for (int64_t d = 0; d < head_dim_v; d++) {
        out[d] = (rounds ? out[d] : out[d] / row_sum_) * gate;
    }
    result_.max_value *= std::abs(static_cast<double>(gate));
    result_.products = std::sqrt(result_.products) * std::abs(static_cast<double>(gate));
    return result_;
}

template <class Real>
const RowWeights<Real> &RowAttention<Real>::weigh(const Real *query, const HeadKeys<Real> &keys, int64_t b, int64_t h, int64_t q,
                                                  Real lse) {
    make_logits(query, keys, b, h, q);
    std::vector<Real> logits = logits_;
    weights_.empty = !softmax(h);
    // Of the logit once: lse is given. A term that is added to a logit of 5e5 rounds it, too.
    weights_.rounding = weights_.empty ? 0 : adds_tensors(p_) ? std::min(1.0, 0x1p-24 * result_.largest) : result_.rounding / 2;
    weights_.seen = seen_;
    weights_.slopes = slopes_;
    weights_.kinks = kinks_;
    weights_.scores = scores_;
    weights_.weights.assign(logits.size(), Real(0));
    for (size_t n = 0; n < logits.size(); n++) {
        if (seen_[n] != 0) {
            weights_.weights[n] = is_16_bit(storage_) ? logits_[n] / row_sum_ : std::exp(logits[n] - lse);
        }
    }
    return weights_;
}

template class RowAttention<double>;
template class RowAttention<float>;
template struct HeadKeys<double>;
template struct HeadKeys<float>;
template void round_all(double *, int64_t, int32_t);
template void round_all(float *, int64_t, int32_t);

} // namespace polyhead::test
