// Problem at generation time: defaults filled in, and refusals in one sentence.
#pragma once

#include <string>

#include <polyhead/c_api.h>

namespace polyhead::gen {

using Problem = polyhead_problem;

// X(name): every field of polyhead_problem that is a number, in its order; only the text of the expression follows. Generator parameters
// and initialisers are made from it; contract/problem_fields.h explains the fields.
#define POLYHEAD_PROBLEM_FIELDS(X)                                                                                                         \
    X(op)                                                                                                                                  \
    X(dtype)                                                                                                                               \
    X(num_heads)                                                                                                                           \
    X(num_kv_heads)                                                                                                                        \
    X(head_dim)                                                                                                                            \
    X(head_dim_v)                                                                                                                          \
    X(embed_dim)                                                                                                                           \
    X(kdim)                                                                                                                                \
    X(vdim)                                                                                                                                \
    X(out_features)                                                                                                                        \
    X(cross)                                                                                                                               \
    X(bias)                                                                                                                                \
    X(causal)                                                                                                                              \
    X(kv_lengths)                                                                                                                          \
    X(lse)                                                                                                                                 \
    X(seq_len_q)                                                                                                                           \
    X(seq_len_kv)                                                                                                                          \
    X(window)                                                                                                                              \
    X(position_offsets)                                                                                                                    \
    X(mask)                                                                                                                                \
    X(mask_broadcast)                                                                                                                      \
    X(score_bias)                                                                                                                          \
    X(score_bias_broadcast)                                                                                                                \
    X(additive_in_storage)                                                                                                                 \
    X(softcap)                                                                                                                             \
    X(alibi)                                                                                                                               \
    X(sinks)                                                                                                                               \
    X(rope)                                                                                                                                \
    X(rotary_dim)                                                                                                                          \
    X(head_gate)                                                                                                                           \
    X(scores)                                                                                                                              \
    X(weights_mean)                                                                                                                        \
    X(value_in_key)                                                                                                                        \
    X(group_size)                                                                                                                          \
    X(f32_weights)                                                                                                                         \
    X(page_size)                                                                                                                           \
    X(int8_cache)                                                                                                                          \
    X(scale_channels)                                                                                                                      \
    X(cache)

std::string dtype_name(int dtype);

// Why this problem cannot be generated, or empty. Names the parameter, the value found and what is allowed.
std::string refusal(const Problem &problem);

// Fills what was left 0 (num_kv_heads, head_dim, head_dim_v, kdim, vdim, seq_len_kv of a self-attention layer, rotary_dim), then refuses or
// not.
std::string complete(Problem *problem);

} // namespace polyhead::gen
