// Gradients of bare attention, evaluated plainly: in double the truth of every test, in float the "plain formula" of the tolerance.
#ifndef POLYHEAD_INSTRUMENTS_GRADIENTS_H
#define POLYHEAD_INSTRUMENTS_GRADIENTS_H

#include <cstdint>
#include <vector>

#include "reference.h"

namespace polyhead::test {

// What roundings may bring into the gradients of a head, to first order: of logits, of the difference of two sums, once each; and in 16
// bits of probs and of gradients of scores, in units of half a last place of 1. The plain formula may be free of them by luck.
struct Rounding {
    double in_f32 = 0, in_storage = 0;
};

constexpr double f32_unit = 0x1p-24; // half a last place of 1 in f32

// A gradient, dense in the order of its shape; of heads that were not asked for 0. Elements that share all dimensions but the last two are
// of one head.
template <class Real> struct Gradient {
    std::vector<Real> values;
    std::vector<Rounding> rounding; // of each head, in double alone
    std::vector<uint8_t> none;      // of modifiers: 1 where nothing was added up
};

// Those of modifiers, each in the shape that its output or else its tensor has. Of the gates' logits (gate) and factors (head_gate).
template <class Real> struct ModifierGradients {
    Gradient<Real> score_bias, slopes, sinks, gate, head_gate;
    Gradient<Real> query_norm_weight, query_norm_bias, key_norm_weight, key_norm_bias;
    std::vector<Gradient<Real>> tables; // of tensors of the expression, in the order of ExpressionCase::gradients
};

template <class Real> struct Gradients {
    Gradient<Real> query;              // [B,H,T_q,d]
    Gradient<Real> key, value;         // [B,H_kv,T_kv,d], [B,H_kv,T_kv,d_v]; with value_in_key key has the sum
    std::vector<uint8_t> empty;        // [B,H,T_q]: 1 where a row sees no key
    std::vector<uint8_t> unseen;       // [B,H_kv,T_kv]: 1 where no row sees the key
    ModifierGradients<Real> modifiers; // where they are asked for
};

enum class Modifiers { no, yes };

// Key/value heads, as b * H_kv + h_kv.
using HeadSet = std::vector<int64_t>;
HeadSet all_heads(const Problem &problem, const polyhead_args &args);
// A deterministic choice of them, at least one, so that about max_flops are spent.
HeadSet sample_heads(const Problem &problem, const polyhead_args &args, uint64_t seed, double max_flops);

// The gradients of these heads and of the queries of their groups. Reads args as polyhead_run does, in f32 whatever the problem stores.
//
// In every Real this is a function of the inputs of the call alone: weights are exp(logit - lse) with its lse, and the sum over the keys of
// weight times gradient of the weight is rowsum(grad_out out) with its out, so that both may be those of more keys than the call has.
// In a 16-bit storage type scores, weights, their gradients and results are rounded; see RowAttention::weigh() for the weights. Of `how`
// the storage type and first_quarter are used, for sums over entries, keys and queries.
template <class Real>
Gradients<Real> evaluate_gradients(const Problem &problem, const polyhead_args &args, const HeadSet &heads, const Evaluation &how = {},
                                   Modifiers modifiers = Modifiers::no);

extern template Gradients<double> evaluate_gradients(const Problem &, const polyhead_args &, const HeadSet &, const Evaluation &,
                                                     Modifiers);
extern template Gradients<float> evaluate_gradients(const Problem &, const polyhead_args &, const HeadSet &, const Evaluation &, Modifiers);

} // namespace polyhead::test
#endif
