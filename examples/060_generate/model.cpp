// Fills the weights of the model: normal random numbers, the same on every machine.
#include "model.h"

#include <cmath>
#include <random>

namespace generate {
namespace {

using Random = std::mt19937_64; // its numbers are the same everywhere, those of std::normal_distribution are not

// The sum of four 16-bit numbers: nearly normal, of variance 1.
float normal(Random &random) {
    const uint64_t word = random();
    const auto sum = static_cast<double>((word & 0xffff) + ((word >> 16) & 0xffff) + ((word >> 32) & 0xffff) + (word >> 48));
    return static_cast<float>((sum / 65535.0 - 2.0) * std::sqrt(3.0));
}

std::vector<float> matrix(Random &random, int64_t rows, int64_t columns) {
    std::vector<float> values(static_cast<size_t>(rows * columns));
    const float scale = 1.0f / std::sqrt(static_cast<float>(columns));
    for (float &value : values)
        value = scale * normal(random);
    return values;
}

std::vector<float> norm_weights(Random &random) {
    std::vector<float> values(embed_dim);
    for (float &value : values)
        value = 1.0f + 0.1f * normal(random);
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
