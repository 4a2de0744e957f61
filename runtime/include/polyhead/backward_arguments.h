// Arguments of calls that compute gradients, one struct for each operation. Included by polyhead.h.
#ifndef POLYHEAD_BACKWARD_ARGUMENTS_H
#define POLYHEAD_BACKWARD_ARGUMENTS_H

#include <polyhead/arguments.h>

namespace polyhead {

// The gradients of query, key and value, from the gradient of out. Masks and modifiers are those of the forward call.
struct SdpaBackwardArgs : ModifierArgs {
    TensorView query;                       // [B,H,T_q,d]
    TensorView key;                         // [B,H_kv,T_kv,d]
    TensorView value;                       // [B,H_kv,T_kv,d_v]; none when built with value_in_key
    TensorView out;                         // [B,H,T_q,d_v], of the forward call
    TensorView lse;                         // f32 [B,H,T_q], of the forward call
    TensorView grad_out;                    // [B,H,T_q,d_v]
    TensorView cu_seqlens_q, cu_seqlens_kv; // as in SdpaArgs
    MutableTensorView grad_query;           // [B,H,T_q,d]
    MutableTensorView grad_key;             // [B,H_kv,T_kv,d]
    MutableTensorView grad_value;           // [B,H_kv,T_kv,d_v]
    TensorView gate;                        // as in SdpaArgs
    // Exactly when built with them; of the shapes of what they are gradients of.
    MutableTensorView grad_score_bias, grad_alibi_slopes, grad_sinks, grad_gate;
    // f32, exactly when built with grad_query_norm and grad_key_norm; biases: with a layer norm.
    MutableTensorView grad_query_norm_weight, grad_query_norm_bias, grad_key_norm_weight, grad_key_norm_bias;
    const MutableTensorView *expression_gradients = nullptr; // of tensors that the expression names in `grad`, in the order of declarations
    int32_t num_expression_gradients = 0;
};

// The gradients of a layer: of its inputs, weights and biases, from the gradient of out. Masks and modifiers are those of the forward call,
// whose kernel was built with keep_heads.
struct MhaBackwardArgs : ModifierArgs {
    TensorView input; // [B,T_q,D]; with cross: the query input
    TensorView key;   // [B,T_kv,kdim], only with cross
    TensorView value; // [B,T_kv,vdim], only with cross
    // Of the forward call.
    TensorView query_heads;                  // [B,H,T_q,d]
    TensorView key_heads;                    // [B,H_kv,T_kv,d]
    TensorView value_heads;                  // [B,H_kv,T_kv,d_v]
    TensorView gate_heads;                   // [B,H,T_q,d_v] or [B,H,T_q,1], exactly when built with gate
    TensorView attended;                     // [B,H,T_q,d_v]
    TensorView lse;                          // f32 [B,H,T_q]
    TensorView grad_out;                     // [B,T_q,D]
    TensorView weight_q, weight_k, weight_v; // [H*d,D], [H_kv*d,kdim], [H_kv*d_v,vdim], not packed
    TensorView weight_out;                   // [D,H*d_v]
    TensorView weight_gate;                  // [H*d_v,D] or [H,D], exactly when built with gate
    MutableTensorView grad_input;            // [B,T_q,D]
    MutableTensorView grad_key, grad_value;  // [B,T_kv,kdim], [B,T_kv,vdim], only with cross
    // Of the shapes of the weights; those of biases f32, of as many elements as the weight has rows, exactly when built with bias.
    MutableTensorView grad_weight_q, grad_weight_k, grad_weight_v, grad_weight_out, grad_weight_gate;
    MutableTensorView grad_bias_q, grad_bias_k, grad_bias_v, grad_bias_out, grad_bias_gate;
    // Exactly when built with them; of the shapes of what they are gradients of.
    MutableTensorView grad_score_bias, grad_alibi_slopes, grad_sinks;
    // f32, exactly when built with grad_query_norm and grad_key_norm; biases: with a layer norm.
    MutableTensorView grad_query_norm_weight, grad_query_norm_bias, grad_key_norm_weight, grad_key_norm_bias;
    const MutableTensorView *expression_gradients = nullptr; // of tensors that the expression names in `grad`, in the order of declarations
    int32_t num_expression_gradients = 0;
};

// The gradients of input and weight, and of the bias, from the gradient of out.
struct LinearBackwardArgs {
    TensorView input;              // [M,K]
    TensorView weight;             // [N,K], not packed
    TensorView grad_out;           // [M,N]
    MutableTensorView grad_input;  // [M,K]
    MutableTensorView grad_weight; // [N,K]
    MutableTensorView grad_bias;   // f32 [N], exactly when built with bias
    Workspace workspace;
    const Plan *plan = nullptr;
};

namespace detail {

// What gradients of attention have in common.
template <class Args> void set_gradients(const Args &a, polyhead_args *args) noexcept {
    args->lse = a.lse;
    args->grad_out = a.grad_out;
    args->grad_key = a.grad_key;
    args->grad_value = a.grad_value;
    args->grad_score_bias = a.grad_score_bias;
    args->grad_alibi_slopes = a.grad_alibi_slopes;
    args->grad_sinks = a.grad_sinks;
    args->grad_query_norm_weight = a.grad_query_norm_weight;
    args->grad_query_norm_bias = a.grad_query_norm_bias;
    args->grad_key_norm_weight = a.grad_key_norm_weight;
    args->grad_key_norm_bias = a.grad_key_norm_bias;
    args->expression_gradients = a.expression_gradients;
    args->num_expression_gradients = a.num_expression_gradients;
}

} // namespace detail

inline polyhead_args c_args(const SdpaBackwardArgs &a) noexcept {
    polyhead_args args = detail::sdpa_args(a, POLYHEAD_SDPA_BACKWARD);
    args.grad_query = a.grad_query;
    detail::set_gradients(a, &args);
    args.grad_gate = a.grad_gate;
    return args;
}

inline polyhead_args c_args(const MhaBackwardArgs &a) noexcept {
    polyhead_args args = detail::mha_args(a, POLYHEAD_MHA_BACKWARD);
    args.weight_q = a.weight_q;
    args.weight_k = a.weight_k;
    args.weight_v = a.weight_v;
    args.weight_out = a.weight_out;
    args.weight_gate = a.weight_gate;
    args.grad_query = a.grad_input;
    args.grad_weight_q = a.grad_weight_q;
    args.grad_weight_k = a.grad_weight_k;
    args.grad_weight_v = a.grad_weight_v;
    args.grad_weight_out = a.grad_weight_out;
    args.grad_weight_gate = a.grad_weight_gate;
    args.grad_bias_q = a.grad_bias_q;
    args.grad_bias_k = a.grad_bias_k;
    args.grad_bias_v = a.grad_bias_v;
    args.grad_bias_out = a.grad_bias_out;
    args.grad_bias_gate = a.grad_bias_gate;
    detail::set_gradients(a, &args);
    return args;
}

inline polyhead_args c_args(const LinearBackwardArgs &a) noexcept {
    polyhead_args args = polyhead_args_of(POLYHEAD_LINEAR_BACKWARD);
    args.query = a.input;
    args.weight = a.weight;
    args.grad_out = a.grad_out;
    args.grad_input = a.grad_input;
    args.grad_weight = a.grad_weight;
    args.grad_bias = a.grad_bias;
    detail::set_means(a, &args);
    return args;
}

} // namespace polyhead
#endif
