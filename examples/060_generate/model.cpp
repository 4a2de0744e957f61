// Fills the weights of the model: normal random numbers, the same on every machine.
#include "model.h"

#include <cmath>

namespace generate {
namespace {

// splitmix64, and the sum of four of its 16-bit parts: nearly normal, of variance 1.
class Random {
public:
    explicit Random(uint64_t seed) : state_(seed) {}
    float normal() {
        uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        z ^= z >> 31;
        const auto sum = static_cast<double>((z & 0xffff) + ((z >> 16) & 0xffff) + ((z >> 32) & 0xffff) + (z >> 48));
        return static_cast<float>((sum / 65535.0 - 2.0) * std::sqrt(3.0));
    }

private:
    uint64_t state_;
};

std::vector<float> matrix(Random &random, int64_t rows, int64_t columns) {
    std::vector<float> values(static_cast<size_t>(rows * columns));
    const float scale = 1.0f / std::sqrt(static_cast<float>(columns));
    for (float &value : values)
        value = scale * random.normal();
    return values;
}

std::vector<float> norm_weights(Random &random) {
    std::vector<float> values(embed_dim);
    for (float &value : values)
        value = 1.0f + 0.1f * random.normal();
    return values;
}

} // namespace

Model random_model(uint64_t seed) {
    Random random(seed);
    Model model;
    model.embedding = matrix(random, vocabulary, embed_dim);
    for (float &value : model.embedding)
        value *= std::sqrt(static_cast<float>(embed_dim));
    for (int64_t i = 0; i < num_layers; i++) {
        Layer layer;
        layer.norm_attention = norm_weights(random);
        layer.qkv = matrix(random, qkv_dim, embed_dim);
        layer.out = matrix(random, embed_dim, query_dim);
        layer.norm_mlp = norm_weights(random);
        layer.gate_up = matrix(random, 2 * hidden_dim, embed_dim);
        layer.down = matrix(random, embed_dim, hidden_dim);
        model.layers.push_back(std::move(layer));
    }
    model.norm = norm_weights(random);
    model.logits = matrix(random, vocabulary, embed_dim);
    for (int64_t position = 0; position < max_seq_len; position++) {
        for (int64_t i = 0; i < head_dim / 2; i++) {
            const double angle = static_cast<double>(position) * std::pow(10000.0, -static_cast<double>(2 * i) / head_dim);
            model.cos.push_back(static_cast<float>(std::cos(angle)));
            model.sin.push_back(static_cast<float>(std::sin(angle)));
        }
    }
    return model;
}

} // namespace generate
