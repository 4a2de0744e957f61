// Random weights as nn.Linear stores them.
#include "weights.h"

#include <cmath>

#include "problems.h"

namespace polyhead::test {

polyhead_tensor LayerWeights::add(const std::vector<int64_t> &shape, float scale, Random &random) {
    storage_.push_back(make_tensor(DType::f32, shape, dense_strides(shape), Place::at_end));
    fill_normal(storage_.back(), random, scale);
    storage_.back().memory.make_read_only();
    return storage_.back().view;
}

LayerWeights::LayerWeights(const Problem &p, uint64_t seed, bool separate) {
    Random random(seed ^ 0x77656967687473u);
    const auto scale = [](int64_t in) { return 1.0f / std::sqrt(static_cast<float>(in)); };
    storage_.reserve(8);
    if (is_linear(p)) {
        tensors_.out_proj = add({p.out_features, p.embed_dim}, scale(p.embed_dim), random);
        tensors_.out_bias = p.bias != 0 ? add({p.out_features}, 0.5f, random) : polyhead_tensor{};
    } else if (is_mha(p)) {
        const int64_t rows_q = p.num_heads * p.head_dim, rows_k = p.num_kv_heads * p.head_dim, rows_v = p.num_kv_heads * p.head_dim_v;
        if (separate || p.kdim != p.embed_dim || p.vdim != p.embed_dim) {
            tensors_.query = add({rows_q, p.embed_dim}, 1.5f * scale(p.embed_dim), random);
            tensors_.key = add({rows_k, p.kdim}, 1.5f * scale(p.kdim), random);
            tensors_.value = add({rows_v, p.vdim}, scale(p.vdim), random);
            if (p.bias != 0) {
                tensors_.query_bias = add({rows_q}, 0.5f, random);
                tensors_.key_bias = add({rows_k}, 0.5f, random);
                tensors_.value_bias = add({rows_v}, 0.5f, random);
            }
        } else {
            tensors_.in_proj = add({rows_q + rows_k + rows_v, p.embed_dim}, 1.5f * scale(p.embed_dim), random);
            tensors_.in_bias = p.bias != 0 ? add({rows_q + rows_k + rows_v}, 0.5f, random) : polyhead_tensor{};
        }
        const int64_t concat = p.num_heads * p.head_dim_v;
        tensors_.out_proj = add({p.embed_dim, concat}, scale(concat), random);
        tensors_.out_bias = p.bias != 0 ? add({p.embed_dim}, 0.5f, random) : polyhead_tensor{};
    }
}

} // namespace polyhead::test
