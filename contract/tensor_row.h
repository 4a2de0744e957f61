// What a row of the table of tensors is, and when tensors exist. Header only.
#ifndef POLYHEAD_CONTRACT_TENSOR_ROW_H
#define POLYHEAD_CONTRACT_TENSOR_ROW_H

#include <cstddef>
#include <cstdint>

#include <polyhead/c_api.h>

#include "operations.h"
#include "problem.h"
#include "weight_layout.h"

namespace polyhead::contract {

using Exists = bool (*)(const polyhead_problem &);
using TypeOf = int32_t (*)(const polyhead_problem &);

// Where the entry takes a tensor.
enum class Place : uint8_t {
    operand, // first; the packed weights and biases follow
    option,  // behind the weights; tensors of the expression and numbers follow
    result,  // last
    host,    // not at all: only the host reads it
};

// Replaces a tensor that a call leaves out: one element, read at every place. So kernels need no branch for absent tensors.
enum class Neutral : uint8_t {
    none, // the tensor is always given
    zero,
    one, // 1.0
    minus_infinity,
    all_true,   // a boolean
    key_length, // seq_len_kv of the call
};

// What an extent counts, beside POLYHEAD_EXTENT_. Batch rows, heads, queries and keys come first: a call gives them.
enum : int32_t {
    extent_kv_heads = -5,
    extent_rows = -6,       // of a linear layer
    extent_pages = -7,      // of a batch row: seq_len_kv / page_size
    extent_blocks = -8,     // of keys: batch rows, or pages
    extent_block_keys = -9, // keys of a block
    extent_new_keys = -10,  // keys of the call itself: with a cache those of its queries
    extent_sequences = -11, // packed ones, and the end of the last
    extent_head_dim = -12,
    extent_head_dim_v = -13,
    extent_embed_dim = -14,
    extent_kdim = -15,
    extent_vdim = -16,
    extent_out_features = -17,
    extent_rotary_pairs = -18, // rotary_dim / 2
    extent_key_scales = -19,   // of a row of key
    extent_value_scales = -20,
    extent_gates = -21,      // of a head
    extent_query_norm = -22, // entries that a weight of the norm has one for each of
    extent_key_norm = -23,
    extent_directions = -24,     // of positions
    extent_query_width = -25,    // of a token: H * d
    extent_key_width = -26,      // H_kv * d
    extent_value_width = -27,    // H_kv * d_v
    extent_attended_width = -28, // H * d_v
    extent_gate_width = -29,
    last_extent = extent_gate_width,
};

struct TensorRow {
    const char *name; // of the argument of the entry, in Python, and in sentences where nothing else is said
    polyhead_tensor polyhead_args::*tensor;
    int ops; // a set of operations
    Place place;
    int32_t rank; // that the entry takes
    TypeOf dtype;
    Exists exists;                 // in a problem of one of these operations
    int32_t extents[4];            // outermost first: POLYHEAD_EXTENT_, or one of the list above
    const char *feature = nullptr; // of a kernel: what it was built with or without
    Neutral neutral = Neutral::none;
    int32_t least_rank = 0;     // that a call may give; its dimensions are the last ones. 0: rank
    bool broadcasts = false;    // one element may serve for a whole dimension, but along the keys only where the kernel was built for that
    bool any_stride = false;    // also of the innermost dimension
    bool gives_lengths = false; // checked first: its extents are lengths of the call
    bool updated = false;       // a result with elements that the call reads
    const char *said = nullptr; // its name in sentences
    const char *without = nullptr; // "the kernel ...": why it is not taken where it does not exist
};

namespace rows { // short names
using P = polyhead_problem;
using A = polyhead_args;
constexpr int32_t B = POLYHEAD_EXTENT_B, H = POLYHEAD_EXTENT_H, Q = POLYHEAD_EXTENT_Q, KV = POLYHEAD_EXTENT_KV, any = POLYHEAD_EXTENT_FREE;
constexpr int32_t kv_heads = extent_kv_heads, blocks = extent_blocks, keys = extent_block_keys, d_k = extent_head_dim,
                  d_v = extent_head_dim_v;

// The field has this value, or any but 0.
template <int32_t P::*field, int32_t value = -1> bool has(const P &p) noexcept {
    return value == -1 ? p.*field != 0 : p.*field == value;
}
inline bool always(const P &) noexcept {
    return true;
}
template <int32_t dtype> int32_t is(const P &) noexcept {
    return dtype;
}
inline int32_t storage(const P &p) noexcept {
    return p.dtype;
}
inline bool has_own_value(const P &p) noexcept {
    return p.value_in_key == 0;
}
inline bool has_no_pages(const P &p) noexcept {
    return p.page_size == 0;
}
inline bool has_sections(const P &p) noexcept {
    return p.rope_sections != POLYHEAD_NO_SECTIONS;
}
inline bool has_one_position(const P &p) noexcept {
    return p.rope != POLYHEAD_NO_ROPE && !has_sections(p);
}
inline bool has_value_scales(const P &p) noexcept {
    return p.int8_cache != 0 && p.value_in_key == 0;
}
inline bool has_gate_bias(const P &p) noexcept {
    return p.gate != POLYHEAD_NO_GATE && p.bias != 0;
}
inline bool keeps_gates(const P &p) noexcept {
    return p.gate != POLYHEAD_NO_GATE && p.keep_heads != 0;
}
inline bool writes_cache(const P &p) noexcept {
    return p.cache != 0 && p.shared_cache == 0;
}
inline bool rotates_keys(const P &p) noexcept {
    return p.rope != POLYHEAD_NO_ROPE && p.shared_cache == 0;
}
template <bool sections> bool rotates_keys_by(const P &p) noexcept {
    return rotates_keys(p) && has_sections(p) == sections;
}
// Weights that are factors, and those that are added to 1.
template <int32_t P::*norm> bool has_factors(const P &p) noexcept {
    return p.*norm == POLYHEAD_RMS_NORM || p.*norm == POLYHEAD_LAYER_NORM;
}
constexpr TypeOf f32 = is<POLYHEAD_F32>, i32 = is<POLYHEAD_I32>, boolean = is<POLYHEAD_BOOL>;

// The columns of a row that most rows leave as they are.
constexpr TensorRow said(TensorRow row, const char *name) {
    row.said = name;
    return row;
}
constexpr TensorRow without(TensorRow row, const char *reason) {
    row.without = reason;
    return row;
}
constexpr TensorRow lengths(TensorRow row) {
    row.gives_lengths = true;
    return row;
}
constexpr TensorRow broadcast(TensorRow row) {
    row.broadcasts = true;
    row.least_rank = 1;
    return row;
}
constexpr TensorRow last_dimensions(TensorRow row) {
    row.least_rank = 1;
    return row;
}
constexpr TensorRow strided(TensorRow row) {
    row.any_stride = true;
    return row;
}
constexpr TensorRow cache(TensorRow row) {
    row.updated = row.gives_lengths = true;
    return row;
}

template <int32_t P::*norm>
constexpr TensorRow norm_row(const char *name, polyhead_tensor A::*tensor, int32_t extent, Exists exists, Neutral neutral) {
    return {name,          tensor,   ops::attention,
            Place::option, 1,        f32,
            exists,        {extent}, norm == &P::query_norm ? "a norm of query" : "a norm of key",
            neutral};
}
// Heads of a layer that its forward call keeps: a result there, and an operand of the backward call.
template <int op>
constexpr TensorRow kept(const char *name, polyhead_tensor A::*tensor, Exists exists, int32_t heads, int32_t tokens, int32_t width) {
    constexpr bool forward = (op & ops::forward) != 0;
    TensorRow row{name, tensor, op, forward ? Place::result : Place::operand, 4, storage, exists, {B, heads, tokens, width}};
    row.feature = forward ? "kept heads" : nullptr;
    row.gives_lengths = !forward;
    return row;
}
// Of a layer as nn.Linear stores it, or its gradient; and the gradient of a bias.
constexpr TensorRow matrix(const char *name, polyhead_tensor A::*tensor, Place place, Exists exists, int32_t outputs, int32_t inputs) {
    TensorRow row{name, tensor, ops::mha_backward, place, 2, weight_dtype, exists, {outputs, inputs}};
    row.gives_lengths = place == Place::operand;
    return row;
}
constexpr TensorRow gradient_of_bias(const char *name, polyhead_tensor A::*tensor, Exists exists, int32_t width) {
    return {name, tensor, ops::mha_backward, Place::result, 1, f32, exists, {width}, "bias"};
}
// Of norms, layer norms alone have a bias.
template <int32_t P::*gradient, int32_t P::*norm> bool has_gradient_of_bias(const P &p) noexcept {
    return p.*gradient != 0 && p.*norm == POLYHEAD_LAYER_NORM;
}
constexpr TensorRow norm_gradient_row(const char *name, polyhead_tensor A::*tensor, int32_t extent, Exists exists) {
    return {name, tensor, ops::attention_backward, Place::result, 1, f32, exists, {extent}, "gradients of a norm"};
}
constexpr TensorRow shared_cache(const char *name, polyhead_tensor A::*tensor, int32_t width) {
    return lengths(
        {name, tensor, ops::attention, Place::option, 4, storage, has<&P::shared_cache>, {blocks, kv_heads, keys, width}, "a cache"});
}
} // namespace rows
} // namespace polyhead::contract
#endif
