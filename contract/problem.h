// What follows from the fields of a problem: dimensions that were left out, free heads, types, positions.
#ifndef POLYHEAD_CONTRACT_PROBLEM_H
#define POLYHEAD_CONTRACT_PROBLEM_H

#include <cstdint>

#include <polyhead/c_api.h>

#include "operations.h"

namespace polyhead::contract {

// A kernel of this problem takes any number of heads: a multiple of group_size, or of the number of key/value heads.
inline bool free_heads(const polyhead_problem &problem) noexcept {
    return by_heads(problem) && problem.num_heads == 0;
}

// Query heads of a key/value head, where the problem has their number; otherwise 1.
inline int32_t group_size_of(const polyhead_problem &problem) noexcept {
    if (free_heads(problem)) {
        return problem.group_size > 0 ? problem.group_size : 1;
    }
    return problem.num_kv_heads > 0 ? problem.num_heads / problem.num_kv_heads : 1;
}

// The problem of a call with so many heads, where they are free. num_kv_heads counts where their group size is free, too.
inline polyhead_problem with_heads(polyhead_problem problem, int64_t num_heads, int64_t num_kv_heads) noexcept {
    if (free_heads(problem)) {
        problem.num_kv_heads = static_cast<int32_t>(problem.free_group_size != 0 ? num_kv_heads : num_heads / group_size_of(problem));
        problem.num_heads = static_cast<int32_t>(num_heads);
    }
    return problem;
}

// The problem with every dimension that was left 0 "as usual" written out.
inline polyhead_problem with_defaults(polyhead_problem problem) noexcept {
    if (problem.num_kv_heads == 0) {
        problem.num_kv_heads = problem.num_heads;
    }
    if (problem.head_dim == 0 && problem.num_heads > 0) {
        problem.head_dim = problem.embed_dim / problem.num_heads;
    }
    if (problem.head_dim_v == 0) {
        problem.head_dim_v = problem.head_dim;
    }
    problem.lse = problem.keep_heads != 0 ? 1 : problem.lse;
    if (is_attention_layer(problem)) {
        if (problem.kdim == 0) {
            problem.kdim = problem.embed_dim;
        }
        if (problem.vdim == 0) {
            problem.vdim = problem.embed_dim;
        }
    }
    return problem;
}

// A layer whose one input is query, key and value.
inline bool attends_itself(const polyhead_problem &p) noexcept {
    return is_attention_layer(p) && p.cross == 0;
}

// Positions of queries among the keys matter: the entry takes from_end.
inline bool knows_positions(const polyhead_problem &p) noexcept {
    return p.causal != POLYHEAD_NOT_CAUSAL || p.window != 0 || p.alibi != 0 || p.rope != POLYHEAD_NO_ROPE || p.position_offsets != 0 ||
           (p.expression && p.expression[0]);
}

// Positions of queries are counted from the last key (bottom_right), or from the first (top_left).
inline bool counts_from_end(const polyhead_problem &p, const polyhead_args &args) noexcept {
    const int32_t own = p.causal != POLYHEAD_NOT_CAUSAL ? p.causal : int32_t(POLYHEAD_BOTTOM_RIGHT);
    return (args.alignment != 0 ? args.alignment : own) == POLYHEAD_BOTTOM_RIGHT;
}

// Dimensions in which a mask or the score_bias of this kernel has one element: bits POLYHEAD_BROADCAST_; other tensors 0.
inline int32_t broadcast_of(const polyhead_problem &p, polyhead_tensor polyhead_args::*tensor) noexcept {
    const bool of_bias = tensor == &polyhead_args::score_bias || tensor == &polyhead_args::grad_score_bias;
    return tensor == &polyhead_args::mask ? p.mask_broadcast : of_bias ? p.score_bias_broadcast : 0;
}

inline int32_t rotary_dim_of(const polyhead_problem &p) noexcept {
    return p.rotary_dim > 0 ? p.rotary_dim : p.head_dim;
}
// Of a polyhead_rope: neighbours are a pair, and the trailing entries of a head are rotated.
constexpr bool rotates_neighbours(int32_t rope) noexcept {
    return rope == POLYHEAD_ROPE_INTERLEAVED || rope == POLYHEAD_ROPE_INTERLEAVED_TRAILING;
}
constexpr bool rotates_trailing(int32_t rope) noexcept {
    return rope == POLYHEAD_ROPE_INTERLEAVED_TRAILING || rope == POLYHEAD_ROPE_HALF_SPLIT_TRAILING;
}

// Rows of heads are normalised before attention reads them.
inline bool normalises(const polyhead_problem &p) noexcept {
    return p.query_norm != POLYHEAD_NO_NORM || p.key_norm != POLYHEAD_NO_NORM || p.value_norm != 0;
}
// Logits of the gate of a head.
inline int32_t gates_of_head(const polyhead_problem &p) noexcept {
    return p.gate == POLYHEAD_GATE_OF_ENTRIES ? p.head_dim_v : p.gate == POLYHEAD_GATE_OF_HEADS ? 1 : 0;
}
// Entries of a token in the projections of a layer.
inline int32_t width_of_queries(const polyhead_problem &p) noexcept {
    return p.num_heads * p.head_dim;
}
inline int32_t width_of_keys(const polyhead_problem &p) noexcept {
    return p.num_kv_heads * p.head_dim;
}
inline int32_t width_of_values(const polyhead_problem &p) noexcept {
    return p.num_kv_heads * p.head_dim_v;
}
inline int32_t width_of_attended(const polyhead_problem &p) noexcept {
    return p.num_heads * p.head_dim_v;
}
inline int32_t width_of_gates(const polyhead_problem &p) noexcept {
    return p.num_heads * gates_of_head(p);
}
// A layer that projects keys, and one that projects values.
inline bool projects_key(const polyhead_problem &p) noexcept {
    return is_attention_layer(p) && p.shared_cache == 0;
}
inline bool projects_value(const polyhead_problem &p) noexcept {
    return projects_key(p) && p.value_from_key == 0;
}

// Rows of out of a linear layer are whole pairs of neighbours: what reads 16 bytes of a tensor at once writes pairs.
inline bool writes_pairs(const polyhead_problem &p) noexcept {
    return (is_attention_layer(p) ? p.embed_dim : projects(p) ? p.out_features : 1) % 2 == 0;
}

// Tensors that are added to logits have one of these types.
inline int32_t additive_dtype(const polyhead_problem &p) noexcept {
    return p.additive_in_storage != 0 ? p.dtype : POLYHEAD_F32;
}

// Type of the elements of key and value.
inline int32_t key_dtype(const polyhead_problem &p) noexcept {
    return p.int8_cache != 0 ? POLYHEAD_I8 : p.dtype;
}
// Scales of so many entries of a row.
inline int32_t scales_of(const polyhead_problem &p, int32_t entries) noexcept {
    return p.scale_channels != 0 ? entries / p.scale_channels : 1;
}

} // namespace polyhead::contract
#endif
