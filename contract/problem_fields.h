// The one table of the fields of polyhead_problem: names, words, where they belong, what is allowed, which kernels serve. Header only:
// the command line, the manifest, refusals and the search for a kernel in a set are made from it.
#ifndef POLYHEAD_CONTRACT_PROBLEM_FIELDS_H
#define POLYHEAD_CONTRACT_PROBLEM_FIELDS_H

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <polyhead/c_problem.h>

#include "dtypes.h"
#include "expression_text.h"
#include "weight_layout.h"

namespace polyhead::contract {

enum class FieldKind {
    number, // 0 or left out: the default
    length, // 0: free at run time
    yes_no,
    choice, // one of `choices`
};

using Serves = bool (*)(int32_t kernel, int32_t wanted);

struct Choice {
    const char *word;
    int32_t value;
};

struct ProblemField {
    const char *name; // num_heads is --num-heads and NUM_HEADS
    int32_t polyhead_problem::*value;
    FieldKind kind;
    int ops;           // a set of operations
    int32_t low, high; // of a number or length with its default written out
    Serves serves;     // whether a kernel built with one value computes a problem with the other
    const char *help;
    Choice choices[8];           // the first is that of 0
    bool always_written = false; // also where it is 0; the flags of other fields are left out then
    constexpr bool belongs_to(int32_t op) const noexcept { return (ops & op_bit(op)) != 0; }
    int num_choices() const noexcept {
        int count = 0;
        while (count < int(sizeof choices / sizeof(Choice)) && choices[count].word != nullptr) {
            ++count;
        }
        return count;
    }
};

namespace field {

using P = polyhead_problem;
constexpr int32_t most_features = 1 << 20, most_length = 1 << 24;

inline bool same(int32_t kernel, int32_t wanted) noexcept {
    return kernel == wanted;
}
inline bool same_truth(int32_t kernel, int32_t wanted) noexcept {
    return (kernel != 0) == (wanted != 0);
}
inline bool fixed_or_free(int32_t kernel, int32_t wanted) noexcept {
    return kernel == 0 || kernel == wanted;
}
// A call may leave it out.
inline bool optional(int32_t kernel, int32_t wanted) noexcept {
    return kernel == wanted || (kernel != 0 && wanted == 0);
}
// A mask of one row serves where the kernel would take one per query; the other direction and one key per row do not fit.
inline bool broadcast(int32_t kernel, int32_t wanted) noexcept {
    return kernel == wanted || kernel == (wanted & ~POLYHEAD_BROADCAST_Q);
}

constexpr ProblemField number(const char *name, int32_t P::*value, int ops, int32_t low, int32_t high, const char *help) {
    return {name, value, FieldKind::number, ops, low, high, same, help, {}};
}
constexpr ProblemField length(const char *name, int32_t P::*value, int ops, const char *help) {
    return {name, value, FieldKind::length, ops, 0, most_length, fixed_or_free, help, {}};
}
constexpr ProblemField yes_no(const char *name, int32_t P::*value, int ops, Serves serves, const char *help) {
    return {name, value, FieldKind::yes_no, ops, 0, 1, serves, help, {}};
}
template <class... Words>
constexpr ProblemField choice(const char *name, int32_t P::*value, int ops, Serves serves, const char *help, Words... words) {
    int32_t next = 0;
    return {name, value, FieldKind::choice, ops, 0, 0, serves, help, {Choice{words, next++}...}};
}
constexpr ProblemField operation(const char *name, int32_t P::*value, const char *help) {
    ProblemField field{name, value, FieldKind::choice, ops::any, 0, 0, same, help, {}};
    size_t count = 0;
    for (const Operation &row : operations) {
        field.choices[count++] = {row.name, row.id};
    }
    field.always_written = true;
    return field;
}
// The types in which tensors can be stored.
constexpr ProblemField storage(const char *name, int32_t P::*value, int ops, const char *help) {
    ProblemField field{name, value, FieldKind::choice, ops, 0, 0, same, help, {}};
    size_t count = 0;
    for (const DTypeRow &row : dtypes) {
        if (row.storage) {
            field.choices[count++] = {row.name, row.id};
        }
    }
    field.always_written = true;
    return field;
}

} // namespace field

// In the order of flags.
inline constexpr ProblemField problem_fields[] = {
    field::operation("op", &polyhead_problem::op, "what is computed"),
    field::number("embed_dim", &polyhead_problem::embed_dim, ops::projects, 1, field::most_features,
                  "mha, mha_backward: width of input and output; linear, linear_backward: width of the input"),
    field::number("out_features", &polyhead_problem::out_features, ops::one_layer, 1, field::most_features,
                  "linear, linear_backward: width of the output"),
    field::number("num_heads", &polyhead_problem::num_heads, ops::attention, 1, 128, "query heads"),
    field::number("num_kv_heads", &polyhead_problem::num_kv_heads, ops::attention, 1, 128,
                  "key/value heads; divides --num-heads (default: --num-heads)"),
    field::number("group_size", &polyhead_problem::group_size, ops::bare, 0, 128,
                  "sdpa: num_heads is free at run time, and so many query heads share a key/value head"),
    field::yes_no("free_group_size", &polyhead_problem::free_group_size, ops::bare, field::same_truth,
                  "sdpa: num_heads and num_kv_heads are free at run time"),
    field::number("head_dim", &polyhead_problem::head_dim, ops::attention, 1, 576,
                  "query/key head dimension, 1..576 (mha default: embed_dim / num_heads)"),
    field::number("head_dim_v", &polyhead_problem::head_dim_v, ops::attention, 1, 576,
                  "value head dimension, 1..576 (default: --head-dim)"),
    field::yes_no("value_in_key", &polyhead_problem::value_in_key, ops::bare, field::same_truth,
                  "value is the leading --head-dim-v entries of key, as in a cache of multi-head latent attention; no value is given"),
    field::yes_no("cross", &polyhead_problem::cross, ops::attention_layers, field::same_truth,
                  "mha: key and value are inputs of their own"),
    field::number("kdim", &polyhead_problem::kdim, ops::attention_layers, 1, field::most_features,
                  "mha --cross: width of the key input (default: --embed-dim)"),
    field::number("vdim", &polyhead_problem::vdim, ops::attention_layers, 1, field::most_features,
                  "mha --cross: width of the value input (default: --embed-dim)"),
    field::yes_no("bias", &polyhead_problem::bias, ops::projects, field::same_truth, "layers and their gradients: with biases"),
    field::choice("causal", &polyhead_problem::causal, ops::attention, field::same,
                  "queries see no later keys; a bare --causal is bottom_right", "none", "bottom_right", "top_left"),
    field::yes_no("kv_lengths", &polyhead_problem::kv_lengths, ops::attention, field::optional, "takes valid key lengths per batch row"),
    field::yes_no("lse", &polyhead_problem::lse, ops::forward, field::same_truth, "also writes the log-sum-exp [B,H,T_q]"),
    field::yes_no("window", &polyhead_problem::window, ops::attention, field::optional, "sliding window, sizes given at run time"),
    field::yes_no("position_offsets", &polyhead_problem::position_offsets, ops::attention, field::optional,
                  "takes a number per batch row that is added to the positions of queries"),
    field::choice("mask", &polyhead_problem::mask, ops::attention, field::optional,
                  "takes a mask, broadcast as [B,H,T_q,T_kv]: bool (true takes part) or additive (floats)", "none", "bool", "additive"),
    field::choice("mask_broadcast", &polyhead_problem::mask_broadcast, ops::attention, field::broadcast,
                  "dimensions in which the mask has one element", "none", "q", "kv", "q,kv"),
    field::yes_no("score_bias", &polyhead_problem::score_bias, ops::attention, field::optional,
                  "takes a tensor, broadcast as [B,H,T_q,T_kv], that is added to the logits"),
    field::choice("score_bias_broadcast", &polyhead_problem::score_bias_broadcast, ops::attention, field::broadcast,
                  "dimensions in which the score bias has one element", "none", "q", "kv", "q,kv"),
    field::yes_no("additive_in_storage", &polyhead_problem::additive_in_storage, ops::attention, field::same_truth,
                  "an additive mask and the score bias have the storage type instead of f32"),
    field::yes_no("softcap", &polyhead_problem::softcap, ops::attention, field::same_truth,
                  "scores become cap * tanh(score / cap), cap given at run time"),
    field::yes_no("alibi", &polyhead_problem::alibi, ops::attention, field::optional, "takes ALiBi slopes [H] or [B,H]"),
    field::yes_no("sinks", &polyhead_problem::sinks, ops::attention, field::optional,
                  "takes a logit per head that takes part in the softmax without a value"),
    field::choice("rope", &polyhead_problem::rope, ops::attention, field::same,
                  "rotates query and key by position: their leading or trailing entries", "none", "interleaved", "half_split",
                  "interleaved_trailing", "half_split_trailing"),
    field::number("rotary_dim", &polyhead_problem::rotary_dim, ops::attention, 0, 576,
                  "entries of head_dim that --rope rotates, even (default: --head-dim)"),
    field::choice("rope_sections", &polyhead_problem::rope_sections, ops::attention, field::same,
                  "pairs of --rope take their positions from two or three directions", "none", "contiguous", "interleaved", "parts"),
    field::number("section_1", &polyhead_problem::section_1, ops::attention, 0, 288, "--rope-sections: pairs of the first direction"),
    field::number("section_2", &polyhead_problem::section_2, ops::attention, 0, 288, "--rope-sections: pairs of the second direction"),
    field::number("section_3", &polyhead_problem::section_3, ops::attention, 0, 288,
                  "--rope-sections: pairs of the third direction (default: two directions)"),
    field::yes_no("head_gate", &polyhead_problem::head_gate, ops::attention, field::optional,
                  "takes a factor per head for the attention result"),
    field::choice("scores", &polyhead_problem::scores, ops::forward, field::same, "also writes these scores [B,H,T_q,T_kv]", "none",
                  "scaled", "capped", "logits", "weights"),
    field::yes_no("weights_mean", &polyhead_problem::weights_mean, ops::forward, field::same_truth,
                  "also writes the mean over heads of the attention weights [B,T_q,T_kv]"),
    field::length("seq_len_q", &polyhead_problem::seq_len_q, ops::any, "fixed query length (default: free at run time)"),
    field::length("seq_len_kv", &polyhead_problem::seq_len_kv, ops::attention, "fixed key length (default: free at run time)"),
    field::storage("dtype", &polyhead_problem::dtype, ops::any, "storage type; f16 and bf16 for CPUs, CUDA and OpenCL"),
    field::yes_no("f32_weights", &polyhead_problem::f32_weights, ops::projects, field::same_truth,
                  "weights are f32 beside inputs and outputs of 16 bits"),
    field::number("page_size", &polyhead_problem::page_size, ops::forward, 0, 1024,
                  "sdpa, mha --cache: keys per page, a power of two; calls give a page table [B, max_pages]"),
    field::yes_no("int8_cache", &polyhead_problem::int8_cache, ops::sdpa, field::same_truth,
                  "sdpa: key and value are int8 with f32 scales for each row; --dtype is the type of query and out"),
    field::number("scale_channels", &polyhead_problem::scale_channels, ops::sdpa, 0, 64,
                  "--int8-cache: 32 or 64 neighbouring entries of a row share a scale (default: the whole row)"),
    field::yes_no("cache", &polyhead_problem::cache, ops::mha, field::same_truth,
                  "mha: keys and values go into a cache of the caller, behind those that are there, and attention reads the cache"),
    field::choice("gate", &polyhead_problem::gate, ops::attention, field::same,
                  "the result is multiplied by the sigmoid of a tensor, in mha of a projection: one number of a head, or of each entry",
                  "none", "heads", "entries"),
    field::choice("query_norm", &polyhead_problem::query_norm, ops::attention, field::same,
                  "normalises each head of query, before its rotation", "none", "rms", "rms_plus_one", "layer"),
    field::choice("key_norm", &polyhead_problem::key_norm, ops::attention, field::same, "normalises each head of key, before its rotation",
                  "none", "rms", "rms_plus_one", "layer"),
    field::yes_no("value_norm", &polyhead_problem::value_norm, ops::attention, field::same_truth,
                  "divides each head of value by the root of its mean square"),
    field::yes_no("norm_of_projection", &polyhead_problem::norm_of_projection, ops::mha, field::same_truth,
                  "mha: the norms of query and key (rms) count all heads of a token as one"),
    field::yes_no("value_from_key", &polyhead_problem::value_from_key, ops::mha, field::same_truth,
                  "mha: value is the projected key before its norm; there are no weights of value"),
    field::yes_no("shared_cache", &polyhead_problem::shared_cache, ops::mha, field::same_truth,
                  "mha --cache: another layer writes the cache; this one has weights of query and out alone"),
    field::yes_no("dropout", &polyhead_problem::dropout, ops::attention, field::same_truth,
                  "weights are dropped at random, by a probability and a seed of the call"),
    field::yes_no("keep_heads", &polyhead_problem::keep_heads, ops::mha, field::same_truth,
                  "mha: also writes lse, the projected heads and the result of attention, which mha_backward reads"),
    field::yes_no("grad_score_bias", &polyhead_problem::grad_score_bias, ops::attention_backward, field::same_truth,
                  "gradients --score-bias: also writes its gradient"),
    field::yes_no("grad_alibi", &polyhead_problem::grad_alibi, ops::attention_backward, field::same_truth,
                  "gradients --alibi: also writes the gradient of the slopes"),
    field::yes_no("grad_sinks", &polyhead_problem::grad_sinks, ops::attention_backward, field::same_truth,
                  "gradients --sinks: also writes their gradient"),
    field::yes_no("grad_gate", &polyhead_problem::grad_gate, ops::sdpa_backward, field::same_truth,
                  "sdpa_backward --gate: also writes its gradient"),
    field::yes_no("grad_query_norm", &polyhead_problem::grad_query_norm, ops::attention_backward, field::same_truth,
                  "gradients --query-norm: also writes the gradients of its weight and bias"),
    field::yes_no("grad_key_norm", &polyhead_problem::grad_key_norm, ops::attention_backward, field::same_truth,
                  "gradients --key-norm: also writes the gradients of its weight and bias"),
    field::choice("precision", &polyhead_problem::precision, ops::sdpa | ops::mha | ops::linear, field::same,
                  "f32: how GPUs may multiply; tf32x3 is three products of tf32 by tensor cores, within the same error", "ieee", "tf32x3"),
};
constexpr size_t num_problem_fields = sizeof(problem_fields) / sizeof(ProblemField);

// Where a field lies in polyhead_problem.
inline ptrdiff_t offset_of(const ProblemField &field) noexcept {
    const polyhead_problem problem{};
    return reinterpret_cast<const char *>(&(problem.*field.value)) - reinterpret_cast<const char *>(&problem);
}

// The table in the order of polyhead_problem. Fields that came later lie behind the expression.
inline const std::array<const ProblemField *, num_problem_fields> &fields_by_offset() {
    static const auto sorted = [] {
        std::array<const ProblemField *, num_problem_fields> all;
        for (size_t i = 0; i < all.size(); ++i) {
            all[i] = &problem_fields[i];
        }
        std::sort(all.begin(), all.end(), [](const ProblemField *a, const ProblemField *b) { return offset_of(*a) < offset_of(*b); });
        return all;
    }();
    return sorted;
}

// The problem with every number that was left 0 "as usual" written out.
inline polyhead_problem written_out(const polyhead_problem &given) noexcept {
    polyhead_problem problem = with_defaults(given);
    if (problem.rope != POLYHEAD_NO_ROPE && problem.rotary_dim == 0) {
        problem.rotary_dim = problem.head_dim;
    }
    if (problem.dtype == POLYHEAD_F32) { // both mean something else only beside 16 bits
        problem.additive_in_storage = problem.f32_weights = 0;
    } else { // floats alone have parts
        problem.precision = POLYHEAD_IEEE;
    }
    return problem;
}

// Null for a value that is none of the field's choices.
inline const char *find_word(const ProblemField &field, int32_t value) noexcept {
    for (int i = 0; i < field.num_choices(); i++) {
        if (field.choices[i].value == value) {
            return field.choices[i].word;
        }
    }
    return nullptr;
}
// "none", "64": a value as in messages and flags.
inline std::string word_of(const ProblemField &field, int32_t value) {
    const char *const word = find_word(field, value);
    return word ? word : std::to_string(value);
}
// "f32, f16 or bf16"
inline std::string words_of(const ProblemField &field) {
    std::string text;
    for (int i = 0; i < field.num_choices(); i++) {
        text += (i == 0 ? "" : i + 1 < field.num_choices() ? ", " : " or ") + std::string(field.choices[i].word);
    }
    return text;
}
// The value of a word; false where the field has no such choice.
inline bool find_choice(const ProblemField &field, std::string_view word, int32_t *value) noexcept {
    for (int i = 0; i < field.num_choices(); i++) {
        if (word == field.choices[i].word) {
            *value = field.choices[i].value;
            return true;
        }
    }
    return false;
}

inline std::string flag_of(const char *name) {
    std::string flag = std::string("--") + name;
    for (char &c : flag) {
        c = c == '_' ? '-' : c;
    }
    return flag;
}

// The flags of polyhead generate that make this problem, on one line for a shell. What follows from other fields is left out.
inline std::string flags_of(const polyhead_problem &given) {
    const polyhead_problem problem = written_out(given);
    std::string line;
    for (const ProblemField &field : problem_fields) {
        const int32_t value = problem.*field.value;
        polyhead_problem without = problem;
        without.*field.value = 0;
        const bool is_bias = field.value == &polyhead_problem::bias; // written also when 0, because other libraries have biases by default
        const bool follows = written_out(without).*field.value == value && !field.always_written && !is_bias;
        if (!field.belongs_to(problem.op) || follows) {
            continue;
        }
        line += (line.empty() ? "" : " ") + (is_bias && value == 0 ? "--no-bias" : flag_of(field.name));
        line += field.kind == FieldKind::yes_no ? "" : " " + word_of(field, value);
    }
    const std::string expression = one_line(problem.expression); // has no quotes: the language has none
    return expression.empty() ? line : line + " --expression '" + expression + "'";
}

} // namespace polyhead::contract
#endif
