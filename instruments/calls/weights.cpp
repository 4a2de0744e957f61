// Random weights as nn.Linear stores them.
#include "weights.h"

#include <cmath>
#include <cstring>
#include <utility>

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
        const int64_t rows_q = p.num_heads * p.head_dim, rows_k = p.num_kv_heads * p.head_dim, rows_v = p.num_kv_heads * p.head_dim_v;
        if (separate || p.kdim != p.embed_dim || p.vdim != p.embed_dim) {
            add(&polyhead_weight_tensors::query, {rows_q, p.embed_dim}, 1.5f * scale(p.embed_dim), random);
            add(&polyhead_weight_tensors::key, {rows_k, p.kdim}, 1.5f * scale(p.kdim), random);
            add(&polyhead_weight_tensors::value, {rows_v, p.vdim}, scale(p.vdim), random);
            if (p.bias != 0) {
                add(&polyhead_weight_tensors::query_bias, {rows_q}, 0.5f, random);
                add(&polyhead_weight_tensors::key_bias, {rows_k}, 0.5f, random);
                add(&polyhead_weight_tensors::value_bias, {rows_v}, 0.5f, random);
            }
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
