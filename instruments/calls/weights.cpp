// Random weights as nn.Linear stores them.
#include "weights.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "../../contract/problem.h"
#include "problems.h"

namespace polyhead::test {

void LayerWeights::add(polyhead_tensor polyhead_weight_tensors::*place, const std::vector<int64_t> &shape, float scale, Random &random) {
    Tensor values = make_tensor(DType::f32, shape, dense_strides(shape), Place::at_end);
    fill_normal(values, random, scale);
    Tensor given;
    if (is_16_bit(dtype_)) {
        const bool bias = shape.size() == 1, as_floats = random.chance(30);
        if (as_floats) {
            given = make_tensor(DType::f32, shape, dense_strides(shape), Place::at_end);
            std::memcpy(given.view.data, values.view.data, values.memory.bytes());
        }
        if (!as_floats || (packed_ != POLYHEAD_F32 && !bias)) { // rounds the values, too
            Tensor stored = store(values, dtype_, Place::at_end);
            given = as_floats ? std::move(given) : std::move(stored);
        }
    }
    reference_.*place = tensors_.*place = values.view;
    values.memory.make_read_only();
    storage_.push_back(std::move(values));
    if (given.view.rank != 0) {
        tensors_.*place = given.view;
        given.memory.make_read_only();
        storage_.push_back(std::move(given));
    }
}

LayerWeights::LayerWeights(const Problem &p, uint64_t seed, bool separate)
    : dtype_(p.dtype), packed_(p.f32_weights != 0 ? POLYHEAD_F32 : p.dtype) {
    Random random(seed ^ 0x77656967687473u);
    const auto scale = [](int64_t in) { return 1.0f / std::sqrt(static_cast<float>(in)); };
    if (is_linear(p)) {
        add(&polyhead_weight_tensors::out_proj, {p.out_features, p.embed_dim}, scale(p.embed_dim), random);
        if (p.bias != 0) {
            add(&polyhead_weight_tensors::out_bias, {p.out_features}, 0.5f, random);
        }
    } else if (is_mha(p)) {
        const int64_t rows_q = p.num_heads * p.head_dim, rows_k = contract::projects_key(p) ? p.num_kv_heads * p.head_dim : 0;
        const int64_t rows_v = contract::projects_value(p) ? p.num_kv_heads * p.head_dim_v : 0;
        const int64_t gates = p.num_heads * contract::gates_of_head(p);
        const bool apart = separate || p.kdim != p.embed_dim || p.vdim != p.embed_dim;
        const bool with_query = apart && gates > 0 && random.chance(50); // the gate of each head behind its query
        const auto add_own = [&](polyhead_tensor polyhead_weight_tensors::*weight, polyhead_tensor polyhead_weight_tensors::*bias,
                                 int64_t rows, int64_t depth, float factor) {
            if (rows > 0) {
                add(weight, {rows, depth}, factor * scale(depth), random);
            }
            if (rows > 0 && p.bias != 0) {
                add(bias, {rows}, 0.5f, random);
            }
        };
        if (gates > 0 && !with_query) {
            add_own(&polyhead_weight_tensors::gate, &polyhead_weight_tensors::gate_bias, gates, p.embed_dim, 2.0f);
        }
        if (apart) {
            add_own(&polyhead_weight_tensors::query, &polyhead_weight_tensors::query_bias, rows_q + (with_query ? gates : 0), p.embed_dim,
                    1.5f);
            add_own(&polyhead_weight_tensors::key, &polyhead_weight_tensors::key_bias, rows_k, p.kdim, 1.5f);
            add_own(&polyhead_weight_tensors::value, &polyhead_weight_tensors::value_bias, rows_v, p.vdim, 1.0f);
        } else {
            add(&polyhead_weight_tensors::in_proj, {rows_q + rows_k + rows_v, p.embed_dim}, 1.5f * scale(p.embed_dim), random);
            if (p.bias != 0) {
                add(&polyhead_weight_tensors::in_bias, {rows_q + rows_k + rows_v}, 0.5f, random);
            }
        }
        const int64_t concat = p.num_heads * p.head_dim_v;
        add(&polyhead_weight_tensors::out_proj, {p.embed_dim, concat}, scale(concat), random);
        if (p.bias != 0) {
            add(&polyhead_weight_tensors::out_bias, {p.embed_dim}, 0.5f, random);
        }
    }
}

} // namespace polyhead::test
