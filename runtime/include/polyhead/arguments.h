// Arguments of calls, one struct for each operation, and the same for the C functions. Included by polyhead.h. Everything here is compiled
// with the program: a libpolyhead of a later version takes it as well.
#ifndef POLYHEAD_ARGUMENTS_H
#define POLYHEAD_ARGUMENTS_H

#include <cstdint>
#include <optional>

#include <polyhead/c_api.h>
#include <polyhead/device.h>
#include <polyhead/plan.h>
#include <polyhead/tensor.h>
#include <polyhead/weights.h>
#include <polyhead/workspace.h>

namespace polyhead {

// Corner in which the causal diagonal ends when seq_len_q differs from the valid key length.
enum class Alignment : int32_t { of_problem = 0, bottom_right = POLYHEAD_BOTTOM_RIGHT, top_left = POLYHEAD_TOP_LEFT };

// Arguments name the device that computes; none is the CPU. Tensors are there, or on the host and are copied there and back.

// Masks and modifiers of attention; give those that the kernel was built with. See polyhead_args for meaning and defaults.
struct ModifierArgs {
    TensorView kv_lengths;              // int32 [B], optional at run time
    std::optional<float> softmax_scale; // default 1/sqrt(head_dim)
    Alignment alignment = Alignment::of_problem;
    TensorView position_offsets; // int32 [B]
    struct Window {
        int32_t left = -1, right = -1; // inclusive; -1 = unbounded
    };
    std::optional<Window> window;
    TensorView mask;                               // bool or floats, broadcast as [B,H,T_q,T_kv]
    TensorView score_bias;                         // floats, the same
    float softcap = 0;                             // > 0 exactly when built with softcap
    TensorView alibi_slopes;                       // f32 [H] or [B,H]
    TensorView sinks;                              // f32 [H]
    TensorView rope_cos, rope_sin;                 // f32 [P, rotary_dim / 2]
    TensorView positions_q;                        // int32 [B,T_q], or [B,S,T_q] with rope_sections
    TensorView positions_kv;                       // the same of keys
    TensorView head_gate;                          // f32 [H]
    TensorView query_norm_weight, query_norm_bias; // f32 [d], or [H*d] with norm_of_projection
    TensorView key_norm_weight, key_norm_bias;     // f32 [d], or [H_kv*d]
    float norm_epsilon = 0;                        // > 0 exactly when built with a norm
    float dropout_p = 0;                           // 0 <= p < 1, when built with dropout; seed and offset: any numbers
    uint32_t dropout_offset = 0;
    uint64_t dropout_seed = 0;
    const TensorView *expression_tensors = nullptr; // in the order of their declarations
    int32_t num_expression_tensors = 0;
    const Device *device = nullptr;
    Workspace workspace;        // threads and memory of the caller, for calls on the CPU
    const Plan *plan = nullptr; // of a call of the same form
};

// And the outputs beside out.
struct AttentionArgs : ModifierArgs {
    MutableTensorView lse;          // f32 [B,H,T_q], exactly when built with lse
    MutableTensorView scores;       // f32 [B,H,T_q,T_kv], exactly when built with scores
    MutableTensorView weights_mean; // f32 [B,T_q,T_kv], exactly when built with weights_mean
};

// softmax(softmax_scale * query key^T + mask) value, per head.
struct SdpaArgs : AttentionArgs {
    TensorView query;      // [B,H,T_q,d]
    TensorView key;        // [B,H_kv,T_kv,d]; with pages [pages,H_kv,page_size,d]
    TensorView value;      // [B,H_kv,T_kv,d_v]; with pages [pages,H_kv,page_size,d_v]; none when built with value_in_key
    TensorView page_table; // int32 [B,max_pages], exactly when built with page_size
    // f32 [B,H_kv,T_kv,n], with pages [pages,H_kv,page_size,n], exactly when built with int8_cache; n is 1 or d / scale_channels.
    TensorView key_scales, value_scales;
    // int32 [B+1] on the host: packed tokens of B sequences; query and out are then [1,H,total,d], key and value [1,H_kv,total,d].
    TensorView cu_seqlens_q, cu_seqlens_kv;
    TensorView gate;       // [B,H,T_q,d_v] or [B,H,T_q,1], before the sigmoid, exactly when built with gate
    MutableTensorView out; // [B,H,T_q,d_v]
};

// The whole layer: projections, attention, concat, output projection.
struct MhaArgs : AttentionArgs {
    TensorView input; // [B,T_q,D]; with cross: the query input
    TensorView key;   // [B,T_kv,kdim], only with cross
    TensorView value; // [B,T_kv,vdim], only with cross
    const Weights *weights = nullptr;
    TensorView cache_lengths;                 // int32 [B]: valid keys before the call, exactly when built with cache
    MutableTensorView key_cache, value_cache; // [B,H_kv,capacity,d], [B,H_kv,capacity,d_v]; or pages, see polyhead_args
    TensorView page_table;                    // int32 [B,max_pages], exactly when built with page_size
    MutableTensorView out;                    // [B,T_q,D]
    // Exactly when built with keep_heads, gate_heads also with gate: what MhaBackwardArgs reads.
    MutableTensorView query_heads, key_heads, value_heads, gate_heads, attended;
};

// out = input W^T + b.
struct LinearArgs {
    TensorView input; // [M,K]
    const Weights *weights = nullptr;
    MutableTensorView out; // [M,N]
    const Device *device = nullptr;
    Workspace workspace;
    const Plan *plan = nullptr;
};

namespace detail {

template <class Args> void set_means(const Args &a, polyhead_args *args) noexcept {
    const Workspace &workspace = a.workspace;
    args->scratch = workspace.scratch;
    args->scratch_bytes = workspace.scratch_bytes;
    args->executor = workspace.executor;
    args->plan = a.plan ? a.plan->raw() : nullptr;
}

// What operations with attention have in common.
inline polyhead_args attention_args(const ModifierArgs &a, polyhead_op op) noexcept {
    static_assert(sizeof(TensorView) == sizeof(polyhead_tensor), "an array of the one is an array of the other");
    polyhead_args args = polyhead_args_of(op);
    args.kv_lengths = a.kv_lengths;
    args.has_softmax_scale = a.softmax_scale.has_value();
    args.softmax_scale = a.softmax_scale.value_or(0.0f);
    args.alignment = static_cast<int32_t>(a.alignment);
    args.device = a.device ? a.device->raw() : nullptr;
    args.position_offsets = a.position_offsets;
    args.has_window = a.window.has_value();
    const ModifierArgs::Window window = a.window.value_or(ModifierArgs::Window());
    args.window_left = window.left;
    args.window_right = window.right;
    args.mask = a.mask;
    args.score_bias = a.score_bias;
    args.softcap = a.softcap;
    args.alibi_slopes = a.alibi_slopes;
    args.sinks = a.sinks;
    args.rope_cos = a.rope_cos;
    args.rope_sin = a.rope_sin;
    args.positions_q = a.positions_q;
    args.positions_kv = a.positions_kv;
    args.head_gate = a.head_gate;
    args.query_norm_weight = a.query_norm_weight;
    args.query_norm_bias = a.query_norm_bias;
    args.key_norm_weight = a.key_norm_weight;
    args.key_norm_bias = a.key_norm_bias;
    args.norm_epsilon = a.norm_epsilon;
    args.dropout_p = a.dropout_p;
    args.dropout_offset = a.dropout_offset;
    args.dropout_seed = a.dropout_seed;
    args.expression_tensors = a.expression_tensors;
    args.num_expression_tensors = a.num_expression_tensors;
    set_means(a, &args);
    return args;
}

inline polyhead_args attention_args(const AttentionArgs &a, polyhead_op op) noexcept {
    polyhead_args args = attention_args(static_cast<const ModifierArgs &>(a), op);
    args.lse = a.lse;
    args.scores = a.scores;
    args.weights_mean = a.weights_mean;
    return args;
}

// What sdpa and its gradients read.
template <class Args> polyhead_args sdpa_args(const Args &a, polyhead_op op) noexcept {
    polyhead_args args = attention_args(a, op);
    args.query = a.query;
    args.key = a.key;
    args.value = a.value;
    args.cu_seqlens_q = a.cu_seqlens_q;
    args.cu_seqlens_kv = a.cu_seqlens_kv;
    args.gate = a.gate;
    args.out = a.out;
    return args;
}

// What mha and its gradients have: inputs, and heads that the one writes and the other reads.
template <class Args> polyhead_args mha_args(const Args &a, polyhead_op op) noexcept {
    polyhead_args args = attention_args(a, op);
    args.query = a.input;
    args.key = a.key;
    args.value = a.value;
    args.query_heads = a.query_heads;
    args.key_heads = a.key_heads;
    args.value_heads = a.value_heads;
    args.gate_heads = a.gate_heads;
    args.attended = a.attended;
    return args;
}

} // namespace detail

// For polyhead_run() and the other C functions. The arguments must live as long.
inline polyhead_args c_args(const SdpaArgs &a) noexcept {
    polyhead_args args = detail::sdpa_args(a, POLYHEAD_SDPA);
    args.page_table = a.page_table;
    args.key_scales = a.key_scales;
    args.value_scales = a.value_scales;
    return args;
}

inline polyhead_args c_args(const MhaArgs &a) noexcept {
    polyhead_args args = detail::mha_args(a, POLYHEAD_MHA);
    args.weights = a.weights ? a.weights->raw() : nullptr;
    args.cache_lengths = a.cache_lengths;
    args.key_cache = a.key_cache;
    args.value_cache = a.value_cache;
    args.page_table = a.page_table;
    args.out = a.out;
    return args;
}

inline polyhead_args c_args(const LinearArgs &a) noexcept {
    polyhead_args args = polyhead_args_of(POLYHEAD_LINEAR);
    args.query = a.input;
    args.weights = a.weights ? a.weights->raw() : nullptr;
    args.out = a.out;
    args.device = a.device ? a.device->raw() : nullptr;
    detail::set_means(a, &args);
    return args;
}

} // namespace polyhead
#endif
