// The formulas of attention, written once as Exprs over (b, h, q, kv). Frames evaluate them in their own coordinates.
#pragma once

#include <functional>

#include "problem.h"
#include <Halide.h>

namespace polyhead::gen {

// Logits live in units of log2 e: one multiplication folded into the query makes every exponential a power of two.
constexpr float log2_e = 1.4426950408889634f;
constexpr float ln_2 = 0.6931471805599453f;
// The logit of an excluded key, and the floor of a row's reference exponent. The floor lies so far above that an excluded
// key's probability is 0 even in an empty row, and below every logit that takes part.
constexpr float excluded_logit = -3.4e38f;
constexpr float row_reference_floor = -2.6e38f;

// What attention reads, whatever tensors or Funcs stand behind it. Positions are in range: frames clamp.
struct AttentionInputs {
    std::function<Halide::Expr(Halide::Expr d, Halide::Expr q, Halide::Expr h, Halide::Expr b)> query;
    std::function<Halide::Expr(Halide::Expr d, Halide::Expr kv, Halide::Expr kv_head, Halide::Expr b)> key;
    std::function<Halide::Expr(Halide::Expr d, Halide::Expr kv, Halide::Expr kv_head, Halide::Expr b)> value;
    std::function<Halide::Expr(Halide::Expr b)> kv_lengths; // empty when the problem has none
    Halide::Expr seq_len_q, seq_len_kv;
    // Rows that key and value have in memory, for clamping loads. A run-time value also where seq_len_kv is fixed: against a constant
    // Halide 21 may prove the clamp needless inside a trimmed loop and then forget why, and ask for one row too many.
    Halide::Expr key_rows;
    Halide::Expr softmax_scale;
    Halide::Expr from_end; // causal only: 1 = bottom_right, 0 = top_left
};

class AttentionFormulas {
public:
    AttentionFormulas(const Problem &problem, AttentionInputs inputs) : problem_(problem), inputs_(std::move(inputs)) {}

    const Problem &problem() const { return problem_; }
    const AttentionInputs &inputs() const { return inputs_; }
    int group_size() const { return problem_.num_heads / problem_.num_kv_heads; }
    bool causal() const { return problem_.causal != POLYHEAD_NOT_CAUSAL; }

    // query * softmax_scale * log2 e
    Halide::Expr scaled_query(const Halide::Expr &d, const Halide::Expr &q, const Halide::Expr &h, const Halide::Expr &b) const;
    // Keys of batch row b that exist: 0..seq_len_kv.
    Halide::Expr kv_length(const Halide::Expr &b) const;
    // Query q takes part with keys 0 .. visible(q, b) - 1. It never falls with q, so the ends of a tile bound the tile.
    Halide::Expr visible(const Halide::Expr &q, const Halide::Expr &b) const;
    // score, or the excluded logit, for key kv of a row that sees `visible` keys.
    static Halide::Expr masked(const Halide::Expr &score, const Halide::Expr &kv, const Halide::Expr &visible);
    // The same where key loops end at the keys that some row sees: only causal leaves anything to exclude.
    Halide::Expr logit(const Halide::Expr &score, const Halide::Expr &kv, const Halide::Expr &visible) const;
    // acc + product for a row that sees `visible` keys, acc for one that does not see key kv and must not meet its value, NaN perhaps.
    static Halide::Expr accumulate(const Halide::Expr &acc, const Halide::Expr &product, const Halide::Expr &kv,
                                   const Halide::Expr &visible);
    // Natural log-sum-exp from a row's reference exponent and sum; -inf for an empty row.
    static Halide::Expr lse(const Halide::Expr &row_reference, const Halide::Expr &row_sum);
    // acc / row_sum; 0 for an empty row.
    static Halide::Expr inverse_sum(const Halide::Expr &row_sum);

private:
    Problem problem_;
    AttentionInputs inputs_;
};

// Keys first .. first + length - 1 as seen by a tile of rows: those that every row sees, and those that only some do (causal).
struct TileKeys {
    Halide::RDom whole, partial;
    TileKeys() = default;
    TileKeys(int length, const Halide::Expr &first, const Halide::Expr &visible_to_all, const Halide::Expr &visible_to_some);
};

} // namespace polyhead::gen
