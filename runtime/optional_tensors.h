// Tensors and numbers that only some attention problems have, in the order in which entries take them. Header only: the runtime fills
// argv from these tables, the generator declares its arguments from them.
#ifndef POLYHEAD_RUNTIME_OPTIONAL_TENSORS_H
#define POLYHEAD_RUNTIME_OPTIONAL_TENSORS_H

#include <cstdint>

#include <polyhead/c_api.h>

namespace polyhead::runtime {

using Exists = bool (*)(const polyhead_problem &);

// Positions of queries among the keys matter: the entry takes from_end.
inline bool knows_positions(const polyhead_problem &p) noexcept {
    return p.causal != POLYHEAD_NOT_CAUSAL || p.window != 0 || p.alibi != 0 || p.rope != POLYHEAD_NO_ROPE || p.position_offsets != 0 ||
           (p.expression && p.expression[0]);
}

inline int32_t rotary_dim_of(const polyhead_problem &p) noexcept {
    return p.rotary_dim > 0 ? p.rotary_dim : p.head_dim;
}

struct OptionalTensor {
    const char *name; // also of the argument of the entry
    polyhead_tensor polyhead_args::*tensor;
    int32_t rank; // that the entry takes
    int32_t dtype;
    Exists exists;
};

constexpr OptionalTensor optional_inputs[] = {
    {"kv_lengths", &polyhead_args::kv_lengths, 1, POLYHEAD_I32, [](const polyhead_problem &p) { return p.kv_lengths != 0; }},
    {"position_offsets", &polyhead_args::position_offsets, 1, POLYHEAD_I32, [](const polyhead_problem &p) { return p.position_offsets != 0; }},
    {"mask", &polyhead_args::mask, 4, POLYHEAD_BOOL, [](const polyhead_problem &p) { return p.mask == POLYHEAD_BOOLEAN_MASK; }},
    {"mask", &polyhead_args::mask, 4, POLYHEAD_F32, [](const polyhead_problem &p) { return p.mask == POLYHEAD_ADDITIVE_MASK; }},
    {"score_bias", &polyhead_args::score_bias, 4, POLYHEAD_F32, [](const polyhead_problem &p) { return p.score_bias != 0; }},
    {"alibi_slopes", &polyhead_args::alibi_slopes, 2, POLYHEAD_F32, [](const polyhead_problem &p) { return p.alibi != 0; }},
    {"sinks", &polyhead_args::sinks, 1, POLYHEAD_F32, [](const polyhead_problem &p) { return p.sinks != 0; }},
    {"rope_cos", &polyhead_args::rope_cos, 2, POLYHEAD_F32, [](const polyhead_problem &p) { return p.rope != POLYHEAD_NO_ROPE; }},
    {"rope_sin", &polyhead_args::rope_sin, 2, POLYHEAD_F32, [](const polyhead_problem &p) { return p.rope != POLYHEAD_NO_ROPE; }},
    {"positions_q", &polyhead_args::positions_q, 2, POLYHEAD_I32, [](const polyhead_problem &p) { return p.rope != POLYHEAD_NO_ROPE; }},
    {"positions_kv", &polyhead_args::positions_kv, 2, POLYHEAD_I32, [](const polyhead_problem &p) { return p.rope != POLYHEAD_NO_ROPE; }},
    {"head_gate", &polyhead_args::head_gate, 1, POLYHEAD_F32, [](const polyhead_problem &p) { return p.head_gate != 0; }},
};
// Behind them come the tensors of the expression, one argument each; of rank 1 where the declaration says 0.

// Then numbers, which an entry takes behind all inputs.
struct ScalarArgument {
    const char *name;
    int32_t dtype; // POLYHEAD_F32 or POLYHEAD_I32
    Exists exists;
};

constexpr ScalarArgument scalar_arguments[] = {
    {"softmax_scale", POLYHEAD_F32, [](const polyhead_problem &) { return true; }},
    {"from_end", POLYHEAD_I32, knows_positions}, // 1: bottom_right, 0: top_left
    // Both >= 0; 2^28 stands for unbounded. Of a causal kernel window_right is 0.
    {"window_left", POLYHEAD_I32, [](const polyhead_problem &p) { return p.window != 0; }},
    {"window_right", POLYHEAD_I32, [](const polyhead_problem &p) { return p.window != 0; }},
    {"softcap", POLYHEAD_F32, [](const polyhead_problem &p) { return p.softcap != 0; }},
    // 1 where positions were left out: the position is p or the index of the key, and the tensor one 0.
    {"position_step_q", POLYHEAD_I32, [](const polyhead_problem &p) { return p.rope != POLYHEAD_NO_ROPE; }},
    {"position_step_kv", POLYHEAD_I32, [](const polyhead_problem &p) { return p.rope != POLYHEAD_NO_ROPE; }},
};
constexpr int32_t window_unbounded = 1 << 28;

// Results beside out, behind it.
constexpr OptionalTensor optional_outputs[] = {
    {"lse", &polyhead_args::lse, 3, POLYHEAD_F32, [](const polyhead_problem &p) { return p.lse != 0; }},
    {"scores", &polyhead_args::scores, 4, POLYHEAD_F32, [](const polyhead_problem &p) { return p.scores != POLYHEAD_NO_SCORES; }},
    {"weights_mean", &polyhead_args::weights_mean, 3, POLYHEAD_F32, [](const polyhead_problem &p) { return p.weights_mean != 0; }},
};

} // namespace polyhead::runtime
#endif
