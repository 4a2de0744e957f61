// The sizes of every tensor that autoschedulers need: one batch row of the fixed lengths.
#pragma once

#include <vector>

#include "../contract/problem.h"
#include "../contract/tensors.h"
#include "../plan/problem.h"
#include "arguments.h"

namespace polyhead::gen {

template <class Tensor, class Result>
void estimate_tensors(const Problem &p, Tensor *query, Tensor *key, Tensor *value, Result *out, const std::vector<Tensor *> &weights,
                      const std::vector<Tensor *> &biases) {
    const bool self = contract::attends_itself(p);
    _halide_user_assert(p.seq_len_q > 0 && (!contract::attends(p) || p.seq_len_kv > 0))
        << "an autoscheduler needs estimates: found a free length, expected seq_len_q and seq_len_kv to be fixed";
    if (contract::by_heads(p)) {
        estimate_extents(*query, {p.head_dim, p.seq_len_q, p.num_heads, 1});
        estimate_extents(*key, {p.head_dim, p.seq_len_kv, p.num_kv_heads, 1});
        if (value) {
            estimate_extents(*value, {p.head_dim_v, p.seq_len_kv, p.num_kv_heads, 1});
        }
        estimate_extents(*out, {p.head_dim_v, p.seq_len_q, p.num_heads, 1});
    } else {
        estimate_extents(*query, {p.embed_dim, p.seq_len_q, 1});
        estimate_extents(*out, {!contract::attends(p) ? p.out_features : p.embed_dim, p.seq_len_q, 1});
    }
    if (contract::is_attention_layer(p) && !self) {
        estimate_extents(*key, {p.kdim, p.seq_len_kv, 1});
        estimate_extents(*value, {p.vdim, p.seq_len_kv, 1});
    }
    const contract::WeightLayout layout = contract::weight_layout(p);
    size_t i = 0;
    for (const contract::WeightRow &row : contract::weight_rows) {
        if (takes(p, row)) {
            const contract::WeightSection &section = layout.*row.section;
            estimate_extents(*weights[i], {POLYHEAD_WEIGHT_PANEL, int(section.depth), int(section.panels())});
            if (biases[i]) {
                estimate_extents(*biases[i], {POLYHEAD_WEIGHT_PANEL * int(section.panels())});
            }
            i++;
        }
    }
}

} // namespace polyhead::gen
