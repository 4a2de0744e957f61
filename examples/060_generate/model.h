// A small decoder in the shape of Llama: sizes and random weights.
#ifndef GENERATE_MODEL_H
#define GENERATE_MODEL_H

#include <cstdint>
#include <vector>

namespace generate {

// As in CMakeLists.txt, which generates the kernels.
constexpr int64_t embed_dim = 512, num_heads = 8, num_kv_heads = 2, head_dim = 64, hidden_dim = 1408, vocabulary = 2048;
constexpr int64_t num_layers = 4, page_size = 16, max_seq_len = 1024;
constexpr int64_t query_dim = num_heads * head_dim, key_dim = num_kv_heads * head_dim, qkv_dim = query_dim + 2 * key_dim;

// Matrices are [out, in], as nn.Linear stores them.
struct Layer {
    std::vector<float> norm_attention, qkv, out; // qkv rows: query, key, value
    std::vector<float> norm_mlp, gate_up, down;  // gate_up rows: gate, up
};

struct Model {
    std::vector<float> embedding; // [vocabulary, embed_dim]
    std::vector<Layer> layers;
    std::vector<float> norm, logits;
    std::vector<float> cos, sin; // [max_seq_len, head_dim / 2]; a pair is (i, i + head_dim / 2)
};

Model random_model(uint64_t seed);

} // namespace generate
#endif
