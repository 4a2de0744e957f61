// The weights of all-MiniLM-L6-v2, as views into its safetensors file.
#ifndef EXAMPLES_010_MINILM_MODEL_H
#define EXAMPLES_010_MINILM_MODEL_H

#include <array>
#include <string>
#include <vector>

#include "../common/safetensors.h"

namespace minilm {

constexpr int num_layers = 6, embed_dim = 384, num_heads = 12, head_dim = embed_dim / num_heads, ffn_dim = 1536;
constexpr int vocab_size = 30522, max_seq_len = 512;
constexpr double layer_norm_eps = 1e-12;

// A linear layer y = x W^T + b: weight [out_features, in_features].
struct Linear {
    const float *weight = nullptr, *bias = nullptr;
};
struct LayerNorm {
    const float *weight = nullptr, *bias = nullptr;
};

struct Layer {
    Linear query, key, value, out; // attention
    LayerNorm attention_norm;
    Linear ffn_up, ffn_down;
    LayerNorm ffn_norm;
};

struct Model {
    const float *word = nullptr, *position = nullptr, *token_type = nullptr; // embeddings
    LayerNorm embedding_norm;
    std::array<Layer, num_layers> layers;
};

// Finds every tensor of the model in the file. Returns "", or one sentence.
std::string load_model(const examples::SafeTensors &file, Model *model);

// Token ids [batch, seq_len], padded at the end, and how many of each row are real.
struct Batch {
    int64_t batch = 0, seq_len = 0;
    std::vector<int32_t> ids, lengths;
    int64_t tokens() const { return batch * seq_len; }
};
// Reads both arrays from .npy files and checks every id and length. Returns "", or one sentence.
std::string load_batch(const std::string &ids_path, const std::string &lengths_path, Batch *batch);

} // namespace minilm
#endif
