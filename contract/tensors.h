// The tensors and numbers of every operation: one row each, in the order in which entries take them. Header only. Checks of a call, argv,
// views of parts, copies to devices, the arguments of the generator, the keywords of Python and the inputs of tests are made from the rows.
#ifndef POLYHEAD_CONTRACT_TENSORS_H
#define POLYHEAD_CONTRACT_TENSORS_H

#include <cstddef>
#include <cstdint>

#include <polyhead/c_api.h>

#include "operations.h"
#include "problem.h"
#include "rope_sections.h"
#include "tensor_row.h"
#include "weight_layout.h"

namespace polyhead::contract {
namespace rows {

inline constexpr TensorRow tensors[] = {
    lengths({"query", &A::query, ops::bare, Place::operand, 4, storage, always, {B, H, Q, d_k}}),
    lengths({"key", &A::key, ops::bare, Place::operand, 4, key_dtype, always, {blocks, kv_heads, keys, d_k}}),
    without(lengths({"value", &A::value, ops::bare, Place::operand, 4, key_dtype, has_own_value, {blocks, kv_heads, keys, d_v}}),
            "takes it from key (value_in_key)"),
    said(lengths({"query", &A::query, ops::attention_layers, Place::operand, 3, storage, always, {B, Q, extent_embed_dim}}), "input"),
    without(lengths({"key", &A::key, ops::attention_layers, Place::operand, 3, storage, has<&P::cross>, {B, KV, extent_kdim}}),
            "is self-attention"),
    without(lengths({"value", &A::value, ops::attention_layers, Place::operand, 3, storage, has<&P::cross>, {B, KV, extent_vdim}}),
            "is self-attention"),
    lengths({"input", &A::query, ops::one_layer, Place::operand, 2, storage, always, {extent_rows, extent_embed_dim}}),
    lengths({"weight", &A::weight, ops::linear_backward, Place::operand, 2, weight_dtype, always, {extent_out_features, extent_embed_dim}}),
    // What the forward call wrote, and the gradient of its result.
    lengths({"out", &A::out, ops::sdpa_backward, Place::operand, 4, storage, always, {B, H, Q, d_v}}),
    kept<ops::mha_backward>("query_heads", &A::query_heads, always, H, Q, d_k),
    kept<ops::mha_backward>("key_heads", &A::key_heads, always, kv_heads, KV, d_k),
    kept<ops::mha_backward>("value_heads", &A::value_heads, always, kv_heads, KV, d_v),
    kept<ops::mha_backward>("gate_heads", &A::gate_heads, has<&P::gate>, H, Q, extent_gates),
    kept<ops::mha_backward>("attended", &A::attended, always, H, Q, d_v),
    lengths({"lse", &A::lse, ops::attention_backward, Place::operand, 3, f32, always, {B, H, Q}}),
    lengths({"grad_out", &A::grad_out, ops::sdpa_backward, Place::operand, 4, storage, always, {B, H, Q, d_v}}),
    lengths({"grad_out", &A::grad_out, ops::mha_backward, Place::operand, 3, storage, always, {B, Q, extent_embed_dim}}),
    matrix("weight_q", &A::weight_q, Place::operand, always, extent_query_width, extent_embed_dim),
    matrix("weight_k", &A::weight_k, Place::operand, always, extent_key_width, extent_kdim),
    matrix("weight_v", &A::weight_v, Place::operand, always, extent_value_width, extent_vdim),
    matrix("weight_out", &A::weight_out, Place::operand, always, extent_embed_dim, extent_attended_width),
    matrix("weight_gate", &A::weight_gate, Place::operand, has<&P::gate>, extent_gate_width, extent_embed_dim),
    lengths({"grad_out", &A::grad_out, ops::linear_backward, Place::operand, 2, storage, always, {extent_rows, extent_out_features}}),

    {"cu_seqlens_q", &A::cu_seqlens_q, ops::bare, Place::host, 1, i32, always, {extent_sequences}},
    without({"cu_seqlens_kv", &A::cu_seqlens_kv, ops::bare, Place::host, 1, i32, has_no_pages, {extent_sequences}},
            "takes keys in pages, whose lengths are kv_lengths"),

    strided({"kv_lengths",
             &A::kv_lengths,
             ops::attention,
             Place::option,
             1,
             i32,
             has<&P::kv_lengths>,
             {B},
             "key lengths",
             Neutral::key_length}),
    lengths({"page_table", &A::page_table, ops::attention, Place::option, 2, i32, has<&P::page_size>, {B, extent_pages}, "pages"}),
    {"key_scales",
     &A::key_scales,
     ops::attention,
     Place::option,
     4,
     f32,
     has<&P::int8_cache>,
     {blocks, kv_heads, keys, extent_key_scales},
     "int8 cache"},
    {"value_scales",
     &A::value_scales,
     ops::attention,
     Place::option,
     4,
     f32,
     has_value_scales,
     {blocks, kv_heads, keys, extent_value_scales},
     "int8 cache"},
    {"cache_lengths", &A::cache_lengths, ops::attention, Place::option, 1, i32, has<&P::cache>, {B}, "a cache"},
    {"position_offsets",
     &A::position_offsets,
     ops::attention,
     Place::option,
     1,
     i32,
     has<&P::position_offsets>,
     {B},
     "position offsets",
     Neutral::zero},
    broadcast({"mask",
               &A::mask,
               ops::attention,
               Place::option,
               4,
               boolean,
               has<&P::mask, POLYHEAD_BOOLEAN_MASK>,
               {B, H, Q, KV},
               "mask",
               Neutral::all_true}),
    broadcast({"mask",
               &A::mask,
               ops::attention,
               Place::option,
               4,
               additive_dtype,
               has<&P::mask, POLYHEAD_ADDITIVE_MASK>,
               {B, H, Q, KV},
               "mask",
               Neutral::zero}),
    broadcast({"score_bias",
               &A::score_bias,
               ops::attention,
               Place::option,
               4,
               additive_dtype,
               has<&P::score_bias>,
               {B, H, Q, KV},
               "score bias",
               Neutral::zero}),
    last_dimensions(
        {"alibi_slopes", &A::alibi_slopes, ops::attention, Place::option, 2, f32, has<&P::alibi>, {B, H}, "alibi", Neutral::zero}),
    {"sinks", &A::sinks, ops::attention, Place::option, 1, f32, has<&P::sinks>, {H}, "sinks", Neutral::minus_infinity},
    {"rope_cos", &A::rope_cos, ops::attention, Place::option, 2, f32, has<&P::rope>, {any, extent_rotary_pairs}, "rope"},
    {"rope_sin", &A::rope_sin, ops::attention, Place::option, 2, f32, has<&P::rope>, {any, extent_rotary_pairs}, "rope"},
    {"positions_q", &A::positions_q, ops::attention, Place::option, 2, i32, has_one_position, {B, Q}, "rope", Neutral::zero},
    {"positions_q", &A::positions_q, ops::attention, Place::option, 3, i32, has_sections, {B, extent_directions, Q}, "rope", Neutral::zero},
    {"positions_kv",
     &A::positions_kv,
     ops::attention,
     Place::option,
     2,
     i32,
     rotates_keys_by<false>,
     {B, extent_new_keys},
     "rope",
     Neutral::zero},
    {"positions_kv",
     &A::positions_kv,
     ops::attention,
     Place::option,
     3,
     i32,
     rotates_keys_by<true>,
     {B, extent_directions, extent_new_keys},
     "rope",
     Neutral::zero},
    {"head_gate", &A::head_gate, ops::attention, Place::option, 1, f32, has<&P::head_gate>, {H}, "head gate", Neutral::one},
    {"gate", &A::gate, ops::bare, Place::option, 4, storage, has<&P::gate>, {B, H, Q, extent_gates}, "a gate"},
    norm_row<&P::query_norm>("query_norm_weight", &A::query_norm_weight, extent_query_norm, has_factors<&P::query_norm>, Neutral::one),
    norm_row<&P::query_norm>("query_norm_weight", &A::query_norm_weight, extent_query_norm, has<&P::query_norm, POLYHEAD_RMS_NORM_PLUS_ONE>,
                             Neutral::zero),
    norm_row<&P::query_norm>("query_norm_bias", &A::query_norm_bias, extent_query_norm, has<&P::query_norm, POLYHEAD_LAYER_NORM>,
                             Neutral::zero),
    norm_row<&P::key_norm>("key_norm_weight", &A::key_norm_weight, extent_key_norm, has_factors<&P::key_norm>, Neutral::one),
    norm_row<&P::key_norm>("key_norm_weight", &A::key_norm_weight, extent_key_norm, has<&P::key_norm, POLYHEAD_RMS_NORM_PLUS_ONE>,
                           Neutral::zero),
    norm_row<&P::key_norm>("key_norm_bias", &A::key_norm_bias, extent_key_norm, has<&P::key_norm, POLYHEAD_LAYER_NORM>, Neutral::zero),
    // Of a cache that another layer wrote.
    shared_cache("key_cache", &A::key_cache, d_k),
    shared_cache("value_cache", &A::value_cache, d_v),

    {"out", &A::out, ops::sdpa, Place::result, 4, storage, always, {B, H, Q, d_v}},
    {"out", &A::out, ops::mha, Place::result, 3, storage, always, {B, Q, extent_embed_dim}},
    {"out", &A::out, ops::linear, Place::result, 2, storage, always, {extent_rows, extent_out_features}},
    {"grad_query", &A::grad_query, ops::sdpa_backward, Place::result, 4, storage, always, {B, H, Q, d_k}},
    {"grad_key", &A::grad_key, ops::sdpa_backward, Place::result, 4, storage, always, {B, kv_heads, KV, d_k}},
    {"grad_value", &A::grad_value, ops::sdpa_backward, Place::result, 4, storage, has_own_value, {B, kv_heads, KV, d_v}},
    {"grad_query", &A::grad_query, ops::mha_backward, Place::result, 3, storage, always, {B, Q, extent_embed_dim}},
    {"grad_key", &A::grad_key, ops::mha_backward, Place::result, 3, storage, has<&P::cross>, {B, KV, extent_kdim}},
    {"grad_value", &A::grad_value, ops::mha_backward, Place::result, 3, storage, has<&P::cross>, {B, KV, extent_vdim}},
    matrix("grad_weight_q", &A::grad_weight_q, Place::result, always, extent_query_width, extent_embed_dim),
    matrix("grad_weight_k", &A::grad_weight_k, Place::result, always, extent_key_width, extent_kdim),
    matrix("grad_weight_v", &A::grad_weight_v, Place::result, always, extent_value_width, extent_vdim),
    matrix("grad_weight_out", &A::grad_weight_out, Place::result, always, extent_embed_dim, extent_attended_width),
    matrix("grad_weight_gate", &A::grad_weight_gate, Place::result, has<&P::gate>, extent_gate_width, extent_embed_dim),
    gradient_of_bias("grad_bias_q", &A::grad_bias_q, has<&P::bias>, extent_query_width),
    gradient_of_bias("grad_bias_k", &A::grad_bias_k, has<&P::bias>, extent_key_width),
    gradient_of_bias("grad_bias_v", &A::grad_bias_v, has<&P::bias>, extent_value_width),
    gradient_of_bias("grad_bias_out", &A::grad_bias_out, has<&P::bias>, extent_embed_dim),
    gradient_of_bias("grad_bias_gate", &A::grad_bias_gate, has_gate_bias, extent_gate_width),
    broadcast({"grad_score_bias",
               &A::grad_score_bias,
               ops::attention_backward,
               Place::result,
               4,
               additive_dtype,
               has<&P::grad_score_bias>,
               {B, H, Q, KV},
               "a gradient of score_bias"}),
    last_dimensions({"grad_alibi_slopes",
                     &A::grad_alibi_slopes,
                     ops::attention_backward,
                     Place::result,
                     2,
                     f32,
                     has<&P::grad_alibi>,
                     {B, H},
                     "a gradient of alibi_slopes"}),
    {"grad_sinks", &A::grad_sinks, ops::attention_backward, Place::result, 1, f32, has<&P::grad_sinks>, {H}, "a gradient of sinks"},
    {"grad_gate",
     &A::grad_gate,
     ops::sdpa_backward,
     Place::result,
     4,
     storage,
     has<&P::grad_gate>,
     {B, H, Q, extent_gates},
     "a gradient of gate"},
    norm_gradient_row("grad_query_norm_weight", &A::grad_query_norm_weight, extent_query_norm, has<&P::grad_query_norm>),
    norm_gradient_row("grad_query_norm_bias", &A::grad_query_norm_bias, extent_query_norm,
                      has_gradient_of_bias<&P::grad_query_norm, &P::query_norm>),
    norm_gradient_row("grad_key_norm_weight", &A::grad_key_norm_weight, extent_key_norm, has<&P::grad_key_norm>),
    norm_gradient_row("grad_key_norm_bias", &A::grad_key_norm_bias, extent_key_norm, has_gradient_of_bias<&P::grad_key_norm, &P::key_norm>),
    {"grad_input", &A::grad_input, ops::linear_backward, Place::result, 2, storage, always, {extent_rows, extent_embed_dim}},
    {"grad_weight", &A::grad_weight, ops::linear_backward, Place::result, 2, weight_dtype, always, {extent_out_features, extent_embed_dim}},
    {"grad_bias", &A::grad_bias, ops::linear_backward, Place::result, 1, f32, has<&P::bias>, {extent_out_features}, "bias"},
    kept<ops::mha>("query_heads", &A::query_heads, has<&P::keep_heads>, H, Q, d_k),
    kept<ops::mha>("key_heads", &A::key_heads, has<&P::keep_heads>, kv_heads, KV, d_k),
    kept<ops::mha>("value_heads", &A::value_heads, has<&P::keep_heads>, kv_heads, KV, d_v),
    kept<ops::mha>("gate_heads", &A::gate_heads, keeps_gates, H, Q, extent_gates),
    kept<ops::mha>("attended", &A::attended, has<&P::keep_heads>, H, Q, d_v),
    {"lse", &A::lse, ops::forward, Place::result, 3, f32, has<&P::lse>, {B, H, Q}, "lse"},
    {"scores", &A::scores, ops::attention, Place::result, 4, f32, has<&P::scores>, {B, H, Q, KV}, "scores"},
    {"weights_mean", &A::weights_mean, ops::attention, Place::result, 3, f32, has<&P::weights_mean>, {B, Q, KV}, "weights_mean"},
    cache({"key_cache", &A::key_cache, ops::attention, Place::result, 4, storage, writes_cache, {blocks, kv_heads, keys, d_k}, "a cache"}),
    cache({"value_cache",
           &A::value_cache,
           ops::attention,
           Place::result,
           4,
           storage,
           writes_cache,
           {blocks, kv_heads, keys, d_v},
           "a cache"}),
};
} // namespace rows
using rows::tensors;
constexpr size_t num_tensors = sizeof(tensors) / sizeof(TensorRow);

// A kernel of this problem takes the tensor.
inline bool takes(const polyhead_problem &problem, const TensorRow &row) noexcept {
    return (row.ops & op_bit(problem.op)) != 0 && row.exists(problem);
}

// A bit for each row.
__extension__ using RowBits = unsigned __int128;

// Some of the rows, in their order.
class TensorSet {
public:
    class Iterator {
    public:
        constexpr explicit Iterator(RowBits left) noexcept : left_(left) {}
        const TensorRow &operator*() const noexcept {
            const auto low = static_cast<uint64_t>(left_), high = static_cast<uint64_t>(left_ >> 64);
            return tensors[low != 0 ? __builtin_ctzll(low) : 64 + __builtin_ctzll(high)];
        }
        constexpr Iterator &operator++() noexcept {
            left_ &= left_ - 1;
            return *this;
        }
        constexpr bool operator!=(const Iterator &other) const noexcept { return left_ != other.left_; }

    private:
        RowBits left_;
    };

    constexpr TensorSet() noexcept = default;
    constexpr Iterator begin() const noexcept { return Iterator(bits_); }
    constexpr Iterator end() const noexcept { return Iterator(0); }
    constexpr void add(size_t row) noexcept { bits_ |= RowBits(1) << row; }
    constexpr TensorSet operator&(const TensorSet &other) const noexcept { return TensorSet(bits_ & other.bits_); }
    constexpr TensorSet operator~() const noexcept { return TensorSet(~bits_ & ((RowBits(1) << num_tensors) - 1)); }

private:
    constexpr explicit TensorSet(RowBits bits) noexcept : bits_(bits) {}
    RowBits bits_ = 0;
};
static_assert(num_tensors < 128, "a row is a bit");

template <class Wanted> constexpr TensorSet rows_where(const Wanted &wanted) noexcept {
    TensorSet set;
    for (size_t i = 0; i < num_tensors; ++i) {
        if (wanted(tensors[i])) {
            set.add(i);
        }
    }
    return set;
}
constexpr TensorSet rows_at(Place place) noexcept {
    return rows_where([place](const TensorRow &row) { return row.place == place; });
}
constexpr TensorSet operand_rows = rows_at(Place::operand), option_rows = rows_at(Place::option), result_rows = rows_at(Place::result),
                    host_rows = rows_at(Place::host), length_rows = rows_where([](const TensorRow &row) { return row.gives_lengths; }),
                    broadcast_rows = rows_where([](const TensorRow &row) { return row.broadcasts; }),
                    cache_rows = rows_where([](const TensorRow &row) {
                        return row.tensor == &polyhead_args::key_cache || row.tensor == &polyhead_args::value_cache;
                    });

// The tensors that a kernel of this problem takes.
inline TensorSet taken_by(const polyhead_problem &problem) noexcept {
    return rows_where([&](const TensorRow &row) { return takes(problem, row); });
}

constexpr const char *said_of(const TensorRow &row) noexcept {
    return row.said ? row.said : row.name;
}

// The first tensor of a call, whose outermost extents are the lengths of the others: "query", or "input".
inline const char *first_tensor_name(const polyhead_problem &problem) noexcept {
    for (const TensorRow &row : tensors) {
        if (takes(problem, row)) {
            return said_of(row);
        }
    }
    return "input";
}

// What an extent counts in this problem: blocks and their keys, without pages, are those of batch rows.
constexpr int32_t counted(int32_t extent, const polyhead_problem &p) noexcept {
    const bool pages = p.page_size > 0;
    return extent == extent_blocks && !pages       ? int32_t(POLYHEAD_EXTENT_B)
           : extent == extent_block_keys && !pages ? int32_t(POLYHEAD_EXTENT_KV)
           : extent == extent_new_keys             ? int32_t(p.cache != 0 ? POLYHEAD_EXTENT_Q : POLYHEAD_EXTENT_KV)
                                                   : extent;
}

// The number that the problem fixes for an extent; 0: a call gives it.
inline int32_t fixed_extent(int32_t extent, const polyhead_problem &p) noexcept {
    switch (extent) {
    case POLYHEAD_EXTENT_H:
        return p.num_heads;
    case POLYHEAD_EXTENT_Q:
    case extent_rows:
        return p.seq_len_q;
    case POLYHEAD_EXTENT_KV:
        return p.seq_len_kv;
    case extent_kv_heads:
        return p.num_kv_heads;
    case extent_block_keys:
        return p.page_size;
    case extent_head_dim:
        return p.head_dim;
    case extent_head_dim_v:
        return p.head_dim_v;
    case extent_embed_dim:
        return p.embed_dim;
    case extent_kdim:
        return p.kdim;
    case extent_vdim:
        return p.vdim;
    case extent_out_features:
        return p.out_features;
    case extent_rotary_pairs:
        return rotary_dim_of(p) / 2;
    case extent_directions:
        return sections_of(p).directions();
    case extent_key_scales:
        return scales_of(p, p.head_dim);
    case extent_value_scales:
        return scales_of(p, p.head_dim_v);
    case extent_gates:
        return gates_of_head(p);
    case extent_query_norm:
        return p.norm_of_projection != 0 ? p.num_heads * p.head_dim : p.head_dim;
    case extent_key_norm:
        return p.norm_of_projection != 0 ? p.num_kv_heads * p.head_dim : p.head_dim;
    case extent_query_width:
        return width_of_queries(p);
    case extent_key_width:
        return width_of_keys(p);
    case extent_value_width:
        return width_of_values(p);
    case extent_attended_width:
        return width_of_attended(p);
    case extent_gate_width:
        return width_of_gates(p);
    default:
        return extent > 0 ? extent : 0;
    }
}

// Packed weights of a layer and their biases, in the order in which entries take them: all weights, then all biases.
struct WeightRow {
    const char *weight, *bias; // names of the arguments of the entry
    WeightSection WeightLayout::*section;
    int ops;
    Exists exists;
};
inline constexpr WeightRow weight_rows[] = {
    {"weight_q", "bias_q", &WeightLayout::query, ops::mha, rows::always},
    {"weight_k", "bias_k", &WeightLayout::key, ops::mha, projects_key},
    {"weight_v", "bias_v", &WeightLayout::value, ops::mha, projects_value},
    {"weight_out", "bias_out", &WeightLayout::out, ops::mha, rows::always},
    {"weight_gate", "bias_gate", &WeightLayout::gate, ops::mha, rows::has<&polyhead_problem::gate>},
    {"weight", "bias_out", &WeightLayout::out, ops::linear, rows::always},
};
constexpr size_t num_weights = sizeof(weight_rows) / sizeof(WeightRow);

inline bool takes(const polyhead_problem &problem, const WeightRow &row) noexcept {
    return (row.ops & op_bit(problem.op)) != 0 && row.exists(problem);
}

// Tensors that an entry of some of these operations takes at most, weights and biases included. Rows of one member exclude each other.
constexpr size_t most_entry_tensors(int of_ops = ops::any) noexcept {
    size_t most = 0;
    for (const Operation &op : operations) {
        size_t count = 0;
        if ((of_ops & op_bit(op.id)) == 0) {
            continue;
        }
        for (size_t i = 0; i < num_tensors; ++i) {
            const auto of_op = [&](const TensorRow &row) { return (row.ops & op_bit(op.id)) != 0 && row.place != Place::host; };
            bool first = of_op(tensors[i]);
            for (size_t j = 0; j < i; ++j) {
                first = first && !(of_op(tensors[j]) && tensors[j].tensor == tensors[i].tensor);
            }
            count += first ? 1 : 0;
        }
        for (const WeightRow &row : weight_rows) {
            count += (row.ops & op_bit(op.id)) != 0 ? 2 : 0;
        }
        most = count > most ? count : most;
    }
    return most;
}

// After the options come the tensors of the expression, one argument each; of rank 1 where the declaration says 0. A call has room for so
// many:
constexpr int32_t most_expression_tensors = 20;

// Then numbers, which an entry takes behind all inputs.
struct NumberRow {
    const char *name;
    int32_t dtype; // POLYHEAD_F32 or POLYHEAD_I32
    Exists exists;
    // Of a number that the caller gives, exactly where it exists: where it lies, what is allowed, and what a tuner measures with. The
    // others follow from the call.
    float polyhead_args::*given = nullptr;
    float least = 0, most = 0;
    const char *allowed = "";
    float usual = 0;
    const char *feature = nullptr; // what a kernel was built with that takes it; null: its name
};

inline constexpr NumberRow numbers[] = {
    {"softmax_scale", POLYHEAD_F32, rows::always},
    {"from_end", POLYHEAD_I32, knows_positions}, // 1: bottom_right, 0: top_left
    // Both >= 0; 2^28 means unbounded. For a causal kernel window_right is 0.
    {"window_left", POLYHEAD_I32, rows::has<&polyhead_problem::window>},
    {"window_right", POLYHEAD_I32, rows::has<&polyhead_problem::window>},
    // The kernel divides by it, and multiplies it by log2 e.
    {"softcap", POLYHEAD_F32, rows::has<&polyhead_problem::softcap>, &polyhead_args::softcap, 1e-37f, 1e38f, "a number from 1e-37 to 1e38",
     30.0f},
    // 1 where positions were left out: the position is p or the index of the key, and the tensor one 0.
    {"position_step_q", POLYHEAD_I32, rows::has<&polyhead_problem::rope>},
    {"position_step_kv", POLYHEAD_I32, rows::rotates_keys},
    {"norm_epsilon", POLYHEAD_F32, normalises, &polyhead_args::norm_epsilon, 1e-37f, 1e38f, "a number from 1e-37 to 1e38", 1e-6f, "a norm"},
    {"dropout_p", POLYHEAD_F32, rows::has<&polyhead_problem::dropout>, &polyhead_args::dropout_p, 0.0f, 0.99999f,
     "a number from 0 to 0.99999", 0.0f, "dropout"}, // a tuner drops nothing, so that its float64 need not know what is dropped
    {"dropout_offset", POLYHEAD_I32, rows::has<&polyhead_problem::dropout>},
    {"seed_low", POLYHEAD_I32, rows::has<&polyhead_problem::dropout>},
    {"seed_high", POLYHEAD_I32, rows::has<&polyhead_problem::dropout>},
};
constexpr size_t num_numbers = sizeof(numbers) / sizeof(NumberRow);
constexpr int32_t window_unbounded = 1 << 28;

// Of an operation that attends.
inline bool takes(const polyhead_problem &problem, const NumberRow &row) noexcept {
    return attends(problem) && row.exists(problem);
}

} // namespace polyhead::contract
#endif
