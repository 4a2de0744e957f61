// The whole encoder: embeddings, six layers of attention and feed-forward network, mean pooling.
#include "encoder.h"

#include <cmath>
#include <utility>

#include "elements.h"
#include "encoder_f64.h"

namespace minilm {
namespace {

using polyhead::view;

// Each row to mean 0 and variance 1, then scaled and shifted; in place.
// Sums and statistics in double, rounded once: between the generated kernels nothing adds to the error.
void layer_norm(const LayerNorm &norm, const std::vector<double> &row, float *out) {
    double mean = 0, variance = 0;
    for (double x : row)
        mean += x;
    mean /= embed_dim;
    for (double x : row)
        variance += (x - mean) * (x - mean);
    const double inverse = 1 / std::sqrt(variance / embed_dim + layer_norm_eps);
    for (int i = 0; i < embed_dim; i++)
        out[i] = static_cast<float>((row[i] - mean) * inverse * norm.weight[i] + norm.bias[i]);
}

// The residual connection and its LayerNorm.
std::vector<float> add_and_norm(const LayerNorm &norm, const std::vector<float> &input, const std::vector<float> &change) {
    std::vector<float> out(input.size());
    std::vector<double> row(embed_dim);
    for (size_t at = 0; at < input.size(); at += embed_dim) {
        for (int i = 0; i < embed_dim; i++)
            row[i] = double(input[at + i]) + change[at + i];
        layer_norm(norm, row, &out[at]);
    }
    return out;
}

// The exact GELU, x times the normal distribution's mass below x.
void gelu(std::vector<float> *values) {
    for (float &x : *values)
        x = static_cast<float>(0.5 * x * (1 + std::erf(x * 0.70710678118654752)));
}

std::vector<float> embed(const Model &model, const Batch &batch) {
    std::vector<float> hidden(batch.tokens() * embed_dim);
    std::vector<double> row(embed_dim);
    for (int64_t token = 0; token < batch.tokens(); token++) {
        const float *word = model.word + int64_t(batch.ids[token]) * embed_dim;
        const float *position = model.position + token % batch.seq_len * embed_dim;
        for (int i = 0; i < embed_dim; i++)
            row[i] = double(word[i]) + model.token_type[i] + position[i];
        layer_norm(model.embedding_norm, row, &hidden[token * embed_dim]);
    }
    return hidden;
}

// The mean over each sentence's real tokens, scaled to length 1.
std::vector<float> pool(const Batch &batch, const std::vector<float> &hidden) {
    std::vector<float> embedding(batch.batch * embed_dim);
    for (int64_t b = 0; b < batch.batch; b++) {
        std::vector<double> mean(embed_dim, 0.0);
        for (int32_t t = 0; t < batch.lengths[b]; t++)
            for (int i = 0; i < embed_dim; i++)
                mean[i] += hidden[(b * batch.seq_len + t) * embed_dim + i];
        double norm = 0;
        for (double x : mean)
            norm += x * x;
        norm = norm > 0 ? std::sqrt(norm) : 1;
        for (int i = 0; i < embed_dim; i++)
            embedding[b * embed_dim + i] = static_cast<float>(mean[i] / norm);
    }
    return embedding;
}

polyhead::WeightTensors attention_weights(const Layer &layer) {
    polyhead::WeightTensors tensors;
    tensors.query = view(layer.query.weight, {embed_dim, embed_dim});
    tensors.key = view(layer.key.weight, {embed_dim, embed_dim});
    tensors.value = view(layer.value.weight, {embed_dim, embed_dim});
    tensors.out_proj = view(layer.out.weight, {embed_dim, embed_dim});
    tensors.query_bias = view(layer.query.bias, {embed_dim});
    tensors.key_bias = view(layer.key.bias, {embed_dim});
    tensors.value_bias = view(layer.value.bias, {embed_dim});
    tensors.out_bias = view(layer.out.bias, {embed_dim});
    return tensors;
}

polyhead::WeightTensors linear_weights(const Linear &linear, int out_features, int in_features) {
    polyhead::WeightTensors tensors;
    tensors.out_proj = view(linear.weight, {out_features, in_features});
    tensors.out_bias = view(linear.bias, {out_features});
    return tensors;
}

} // namespace

polyhead::Status Encoder::pack(const polyhead::Kernel &kernel, const polyhead::WeightTensors &tensors, polyhead::Weights *weights) const {
    const polyhead::Status status = kernel.pack(tensors, weights);
    if (!status.ok() || !kernels_.device)
        return status;
    const polyhead::Weights host = std::move(*weights);
    return kernels_.device->put(host, weights);
}

polyhead::Status Encoder::run_linear(const polyhead::Kernel &kernel, const polyhead::Weights &weights, std::vector<float> *rows) const {
    const int64_t in_features = kernel.problem.embed_dim, out_features = kernel.problem.out_features;
    const int64_t tokens = static_cast<int64_t>(rows->size()) / in_features;
    Elements input(dtype(), *rows), out(dtype(), static_cast<size_t>(tokens * out_features));
    polyhead::LinearArgs args;
    args.input = input.view({tokens, in_features});
    args.weights = &weights;
    args.out = out.view({tokens, out_features});
    args.device = kernels_.device;
    const polyhead::Status status = kernel.run(args);
    *rows = out.floats();
    return status;
}

size_t Encoder::weights_bytes() const {
    size_t bytes = 0;
    for (const Packed &packed : packed_)
        bytes += packed.attention.bytes() + packed.ffn_up.bytes() + packed.ffn_down.bytes();
    return bytes;
}

std::string Encoder::init(const Model &model, const Kernels &kernels) {
    model_ = model;
    kernels_ = kernels;
    for (int i = 0; i < num_layers; i++) {
        const Layer &layer = model.layers[i];
        Packed &packed = packed_[i];
        polyhead::Status status = pack(*kernels_.attention, attention_weights(layer), &packed.attention);
        if (status.ok())
            status = pack(*kernels_.ffn_up, linear_weights(layer.ffn_up, ffn_dim, embed_dim), &packed.ffn_up);
        if (status.ok())
            status = pack(*kernels_.ffn_down, linear_weights(layer.ffn_down, embed_dim, ffn_dim), &packed.ffn_down);
        if (!status.ok())
            return status.message();
    }
    return "";
}

polyhead::Status Encoder::attention(int layer, const Batch &batch, const polyhead::TensorView &input,
                                    const polyhead::MutableTensorView &out) const {
    polyhead::MhaArgs args;
    args.input = input;
    args.weights = &packed_[layer].attention;
    args.kv_lengths = view(batch.lengths.data(), {batch.batch});
    args.out = out;
    args.device = kernels_.device;
    return kernels_.attention->run(args);
}

std::string Encoder::run_layer(int index, const Batch &batch, Encoded *encoded, FeedForward feed_forward) const {
    const std::vector<float> &input = encoded->hidden[index];
    std::vector<float> &attended = encoded->attention[index], &hidden = encoded->hidden[index + 1];
    Elements stored(dtype(), input), out(dtype(), input.size());
    polyhead::Status status =
        attention(index, batch, stored.view({batch.batch, batch.seq_len, embed_dim}), out.view({batch.batch, batch.seq_len, embed_dim}));
    if (!status.ok())
        return status.message();
    attended = out.floats();
    if (feed_forward == FeedForward::float64) {
        std::vector<double> rows(input.begin(), input.end());
        rest_of_layer_f64(model_.layers[index], std::vector<double>(attended.begin(), attended.end()), &rows);
        hidden.assign(rows.begin(), rows.end());
        return "";
    }
    const std::vector<float> residual = add_and_norm(model_.layers[index].attention_norm, input, attended);

    hidden = residual;
    status = run_linear(*kernels_.ffn_up, packed_[index].ffn_up, &hidden);
    if (!status.ok())
        return status.message();
    gelu(&hidden);
    status = run_linear(*kernels_.ffn_down, packed_[index].ffn_down, &hidden);
    if (!status.ok())
        return status.message();
    hidden = add_and_norm(model_.layers[index].ffn_norm, residual, hidden);
    return "";
}

std::string Encoder::run(const Batch &batch, Encoded *encoded, FeedForward feed_forward) const {
    encoded->hidden[0] = embed(model_, batch);
    for (int i = 0; i < num_layers; i++) {
        std::string error = run_layer(i, batch, encoded, feed_forward);
        if (!error.empty())
            return error;
    }
    encoded->embedding = pool(batch, encoded->hidden[num_layers]);
    return "";
}

} // namespace minilm
