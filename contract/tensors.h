// Tensors and numbers that only some attention problems have, in the order in which entries take them. Header only: the runtime fills
// argv from these tables, the generator declares its arguments from them.
#ifndef POLYHEAD_CONTRACT_TENSORS_H
#define POLYHEAD_CONTRACT_TENSORS_H

#include <cstdint>

#include <polyhead/c_api.h>

#include "problem.h"

namespace polyhead::contract {

using Exists = bool (*)(const polyhead_problem &);

// Replaces a tensor that a call leaves out: one element, read at every place. So kernels need no branch for absent tensors.
enum class Neutral : uint8_t {
    none, // the tensor is always given
    zero,
    one, // 1.0
    minus_infinity,
    all_true,   // a boolean
    key_length, // seq_len_kv of the call
};

// An extent that no declaration of an expression has: rotary_dim / 2.
constexpr int32_t extent_rotary_pairs = -5;
// Another one: seq_len_kv / page_size.
constexpr int32_t extent_pages = -6;
// Those of scales and of a cache: num_kv_heads, page_size, scales of a row of key or value; batch rows or pages, keys of a batch row or of
// a page, entries of a key and of a value.
constexpr int32_t extent_kv_heads = -7, extent_page_size = -8, extent_key_scales = -9, extent_value_scales = -10;
constexpr int32_t extent_cache_blocks = -11, extent_cache_keys = -12, extent_head_dim = -13, extent_head_dim_v = -14;

struct OptionalTensor {
    const char *name; // also of the argument of the entry
    polyhead_tensor polyhead_args::*tensor;
    int32_t rank; // that the entry takes
    int32_t dtype;
    Exists exists;
    const char *feature; // of a kernel: what it was built with or without
    int32_t extents[4];  // outermost first, as in polyhead_declaration
    Neutral neutral;
    bool broadcasts = false; // one element may serve for a whole dimension, but along the keys only where the kernel was built for that
};

namespace tables { // short names for the rows
using P = polyhead_problem;
using A = polyhead_args;
constexpr int32_t B = POLYHEAD_EXTENT_B, H = POLYHEAD_EXTENT_H, Q = POLYHEAD_EXTENT_Q, KV = POLYHEAD_EXTENT_KV;

// The field has this value, or any but 0.
template <int32_t P::*field, int32_t value = -1> bool has(const P &p) noexcept {
    return value == -1 ? p.*field != 0 : p.*field == value;
}

template <int32_t dtype> bool has_additive_mask(const P &p) noexcept {
    return p.mask == POLYHEAD_ADDITIVE_MASK && additive_dtype(p) == dtype;
}
template <int32_t dtype> bool has_cache(const P &p) noexcept {
    return p.cache != 0 && p.dtype == dtype;
}
// Positions of keys: of all, or of those that a layer puts into its cache.
template <bool cache> bool has_positions_kv(const P &p) noexcept {
    return p.rope != POLYHEAD_NO_ROPE && (p.cache != 0) == cache;
}
template <int32_t dtype> bool has_score_bias(const P &p) noexcept {
    return p.score_bias != 0 && additive_dtype(p) == dtype;
}

template <bool pages, bool of_value> bool has_scales(const P &p) noexcept {
    return p.int8_cache != 0 && (p.page_size != 0) == pages && (!of_value || p.value_in_key == 0);
}

constexpr OptionalTensor optional_inputs[] = {
    {"kv_lengths", &A::kv_lengths, 1, POLYHEAD_I32, has<&P::kv_lengths>, "key lengths", {B}, Neutral::key_length},
    {"page_table", &A::page_table, 2, POLYHEAD_I32, has<&P::page_size>, "pages", {B, extent_pages}, Neutral::none},
    {"key_scales",
     &A::key_scales,
     4,
     POLYHEAD_F32,
     has_scales<false, false>,
     "int8 cache",
     {B, extent_kv_heads, KV, extent_key_scales},
     Neutral::none},
    {"key_scales",
     &A::key_scales,
     4,
     POLYHEAD_F32,
     has_scales<true, false>,
     "int8 cache",
     {POLYHEAD_EXTENT_FREE, extent_kv_heads, extent_page_size, extent_key_scales},
     Neutral::none},
    {"value_scales",
     &A::value_scales,
     4,
     POLYHEAD_F32,
     has_scales<false, true>,
     "int8 cache",
     {B, extent_kv_heads, KV, extent_value_scales},
     Neutral::none},
    {"value_scales",
     &A::value_scales,
     4,
     POLYHEAD_F32,
     has_scales<true, true>,
     "int8 cache",
     {POLYHEAD_EXTENT_FREE, extent_kv_heads, extent_page_size, extent_value_scales},
     Neutral::none},
    {"cache_lengths", &A::cache_lengths, 1, POLYHEAD_I32, has<&P::cache>, "a cache", {B}, Neutral::none},
    {"position_offsets", &A::position_offsets, 1, POLYHEAD_I32, has<&P::position_offsets>, "position offsets", {B}, Neutral::zero},
    {"mask", &A::mask, 4, POLYHEAD_BOOL, has<&P::mask, POLYHEAD_BOOLEAN_MASK>, "mask", {B, H, Q, KV}, Neutral::all_true, true},
    {"mask", &A::mask, 4, POLYHEAD_F32, has_additive_mask<POLYHEAD_F32>, "mask", {B, H, Q, KV}, Neutral::zero, true},
    {"mask", &A::mask, 4, POLYHEAD_F16, has_additive_mask<POLYHEAD_F16>, "mask", {B, H, Q, KV}, Neutral::zero, true},
    {"mask", &A::mask, 4, POLYHEAD_BF16, has_additive_mask<POLYHEAD_BF16>, "mask", {B, H, Q, KV}, Neutral::zero, true},
    {"score_bias", &A::score_bias, 4, POLYHEAD_F32, has_score_bias<POLYHEAD_F32>, "score bias", {B, H, Q, KV}, Neutral::zero, true},
    {"score_bias", &A::score_bias, 4, POLYHEAD_F16, has_score_bias<POLYHEAD_F16>, "score bias", {B, H, Q, KV}, Neutral::zero, true},
    {"score_bias", &A::score_bias, 4, POLYHEAD_BF16, has_score_bias<POLYHEAD_BF16>, "score bias", {B, H, Q, KV}, Neutral::zero, true},
    {"alibi_slopes", &A::alibi_slopes, 2, POLYHEAD_F32, has<&P::alibi>, "alibi", {B, H}, Neutral::zero},
    {"sinks", &A::sinks, 1, POLYHEAD_F32, has<&P::sinks>, "sinks", {H}, Neutral::minus_infinity},
    {"rope_cos", &A::rope_cos, 2, POLYHEAD_F32, has<&P::rope>, "rope", {POLYHEAD_EXTENT_FREE, extent_rotary_pairs}, Neutral::none},
    {"rope_sin", &A::rope_sin, 2, POLYHEAD_F32, has<&P::rope>, "rope", {POLYHEAD_EXTENT_FREE, extent_rotary_pairs}, Neutral::none},
    {"positions_q", &A::positions_q, 2, POLYHEAD_I32, has<&P::rope>, "rope", {B, Q}, Neutral::zero},
    {"positions_kv", &A::positions_kv, 2, POLYHEAD_I32, has_positions_kv<false>, "rope", {B, KV}, Neutral::zero},
    {"positions_kv", &A::positions_kv, 2, POLYHEAD_I32, has_positions_kv<true>, "rope", {B, Q}, Neutral::zero},
    {"head_gate", &A::head_gate, 1, POLYHEAD_F32, has<&P::head_gate>, "head gate", {H}, Neutral::one},
};

constexpr int32_t blocks = extent_cache_blocks, kv_heads = extent_kv_heads, keys = extent_cache_keys, d_k = extent_head_dim,
                  d_v = extent_head_dim_v;
// Results beside out, behind it. A cache has elements that the call reads.
constexpr OptionalTensor optional_outputs[] = {
    {"lse", &A::lse, 3, POLYHEAD_F32, has<&P::lse>, "lse", {B, H, Q}, Neutral::none},
    {"scores", &A::scores, 4, POLYHEAD_F32, has<&P::scores>, "scores", {B, H, Q, KV}, Neutral::none},
    {"weights_mean", &A::weights_mean, 3, POLYHEAD_F32, has<&P::weights_mean>, "weights_mean", {B, Q, KV}, Neutral::none},
    {"key_cache", &A::key_cache, 4, POLYHEAD_F32, has_cache<POLYHEAD_F32>, "a cache", {blocks, kv_heads, keys, d_k}, Neutral::none},
    {"key_cache", &A::key_cache, 4, POLYHEAD_F16, has_cache<POLYHEAD_F16>, "a cache", {blocks, kv_heads, keys, d_k}, Neutral::none},
    {"key_cache", &A::key_cache, 4, POLYHEAD_BF16, has_cache<POLYHEAD_BF16>, "a cache", {blocks, kv_heads, keys, d_k}, Neutral::none},
    {"value_cache", &A::value_cache, 4, POLYHEAD_F32, has_cache<POLYHEAD_F32>, "a cache", {blocks, kv_heads, keys, d_v}, Neutral::none},
    {"value_cache", &A::value_cache, 4, POLYHEAD_F16, has_cache<POLYHEAD_F16>, "a cache", {blocks, kv_heads, keys, d_v}, Neutral::none},
    {"value_cache", &A::value_cache, 4, POLYHEAD_BF16, has_cache<POLYHEAD_BF16>, "a cache", {blocks, kv_heads, keys, d_v}, Neutral::none},
};
} // namespace tables
using tables::optional_inputs;
using tables::optional_outputs;

// Written by a call and read by it, too.
inline bool is_cache(const OptionalTensor &row) noexcept {
    return row.tensor == &polyhead_args::key_cache || row.tensor == &polyhead_args::value_cache;
}

// After the optional inputs come the tensors of the expression, one argument each; of rank 1 where the declaration says 0. A call has room
// for so many:
constexpr int32_t most_expression_tensors = 20;

// Then numbers, which an entry takes behind all inputs.
struct ScalarArgument {
    const char *name;
    int32_t dtype; // POLYHEAD_F32 or POLYHEAD_I32
    Exists exists;
};

constexpr ScalarArgument scalar_arguments[] = {
    {"softmax_scale", POLYHEAD_F32, [](const polyhead_problem &) { return true; }},
    {"from_end", POLYHEAD_I32, knows_positions}, // 1: bottom_right, 0: top_left
    // Both >= 0; 2^28 means unbounded. For a causal kernel window_right is 0.
    {"window_left", POLYHEAD_I32, [](const polyhead_problem &p) { return p.window != 0; }},
    {"window_right", POLYHEAD_I32, [](const polyhead_problem &p) { return p.window != 0; }},
    {"softcap", POLYHEAD_F32, [](const polyhead_problem &p) { return p.softcap != 0; }},
    // 1 where positions were left out: the position is p or the index of the key, and the tensor one 0.
    {"position_step_q", POLYHEAD_I32, [](const polyhead_problem &p) { return p.rope != POLYHEAD_NO_ROPE; }},
    {"position_step_kv", POLYHEAD_I32, [](const polyhead_problem &p) { return p.rope != POLYHEAD_NO_ROPE; }},
};
constexpr int32_t window_unbounded = 1 << 28;

} // namespace polyhead::contract
#endif
