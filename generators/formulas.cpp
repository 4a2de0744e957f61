// The formulas of attention: scale, visibility of keys, logits, and how a row ends.
#include "formulas.h"

namespace polyhead::gen {

using Halide::Expr;

Expr AttentionFormulas::scaled_query(const Expr &d, const Expr &q, const Expr &h, const Expr &b) const {
    return inputs_.query(d, q, h, b) * (inputs_.softmax_scale * log2_e);
}

Expr AttentionFormulas::kv_length(const Expr &b) const {
    return problem_.kv_lengths ? Halide::clamp(inputs_.kv_lengths(b), 0, inputs_.seq_len_kv) : inputs_.seq_len_kv;
}

Expr AttentionFormulas::visible(const Expr &q, const Expr &b) const {
    Expr length = kv_length(b);
    if (!causal()) {
        return length;
    }
    // top_left: query q sees keys 0..q, so min(length, q + 1). bottom_right: the last query sees the last valid key, so
    // length + min(q + 1 - seq_len_q, 0). Both in one, without a select and with one mention of length, which may be a load: Halide 21
    // trims loops that end here only then.
    constexpr int longer_than_any = 1 << 30;
    Expr from_end = inputs_.from_end * longer_than_any;
    Expr missing = Halide::max(Halide::min(q + 1 - inputs_.seq_len_q, 0), -from_end);
    return Halide::max(Halide::min(length, q + 1 + from_end) + missing, 0);
}

Expr AttentionFormulas::masked(const Expr &score, const Expr &kv, const Expr &visible) {
    return Halide::select(kv < visible, score, excluded_logit);
}

Expr AttentionFormulas::logit(const Expr &score, const Expr &kv, const Expr &visible) const {
    return causal() ? masked(score, kv, visible) : score;
}

Expr AttentionFormulas::accumulate(const Expr &acc, const Expr &product, const Expr &kv, const Expr &visible) {
    return Halide::select(kv < visible, acc + product, acc);
}

Expr AttentionFormulas::lse(const Expr &row_reference, const Expr &row_sum) {
    // log() of a positive sum; the select decides emptiness, never the size of a logit. -inf is made from its bits because
    // the default float mode assumes that none exists.
    Expr minus_infinity = Halide::reinterpret<float>(Halide::cast<int32_t>(int32_t(0xff800000)));
    return Halide::select(row_sum > 0.0f, row_reference * ln_2 + Halide::log(Halide::max(row_sum, 1e-37f)), minus_infinity);
}

Expr AttentionFormulas::inverse_sum(const Expr &row_sum) {
    return Halide::select(row_sum > 0.0f, 1.0f / Halide::max(row_sum, 1e-37f), 0.0f);
}

TileKeys::TileKeys(int length, const Expr &first, const Expr &visible_to_all, const Expr &visible_to_some)
    : whole(0, length, "whole_keys"), partial(0, length, "partial_keys") {
    whole.where(first + whole < visible_to_all);
    partial.where(first + partial >= visible_to_all);
    partial.where(first + partial < visible_to_some);
}

} // namespace polyhead::gen
