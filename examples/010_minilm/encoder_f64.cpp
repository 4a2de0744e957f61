// The same encoder evaluated in float64 by plain loops, one unpadded sentence at a time.
#include "encoder_f64.h"

#include <algorithm>
#include <cmath>

namespace minilm {
namespace {

using Matrix = std::vector<double>;

// rows W^T + b. Eight running sums per dot product, so that the compiler may use vectors without reordering one sum.
Matrix linear(const Linear &layer, const Matrix &rows, int in_features, int out_features) {
    const int64_t count = static_cast<int64_t>(rows.size()) / in_features;
    Matrix out(count * out_features);
    for (int n = 0; n < out_features; n++) {
        const float *weight = layer.weight + int64_t(n) * in_features;
        for (int64_t row = 0; row < count; row++) {
            const double *x = rows.data() + row * in_features;
            double sums[8] = {};
            for (int k = 0; k < in_features; k += 8)
                for (int j = 0; j < 8; j++)
                    sums[j] += x[k + j] * weight[k + j];
            double sum = layer.bias[n];
            for (double part : sums)
                sum += part;
            out[row * out_features + n] = sum;
        }
    }
    return out;
}

void layer_norm(const LayerNorm &norm, Matrix *rows) {
    for (size_t start = 0; start < rows->size(); start += embed_dim) {
        double *row = rows->data() + start, mean = 0, variance = 0;
        for (int i = 0; i < embed_dim; i++)
            mean += row[i] / embed_dim;
        for (int i = 0; i < embed_dim; i++)
            variance += (row[i] - mean) * (row[i] - mean) / embed_dim;
        for (int i = 0; i < embed_dim; i++)
            row[i] = (row[i] - mean) / std::sqrt(variance + layer_norm_eps) * norm.weight[i] + norm.bias[i];
    }
}

void add(const Matrix &other, Matrix *sum) {
    for (size_t i = 0; i < sum->size(); i++)
        (*sum)[i] += other[i];
}

double dot(const double *a, const double *b) {
    double sum = 0;
    for (int i = 0; i < head_dim; i++)
        sum += a[i] * b[i];
    return sum;
}

// softmax(query key^T / sqrt(d)) value of one head, into its columns of out.
void attend(const double *query, const double *key, const double *value, int64_t length, double *out) {
    const double softmax_scale = 1 / std::sqrt(static_cast<double>(head_dim));
    std::vector<double> probs(length);
    for (int64_t q = 0; q < length; q++) {
        for (int64_t k = 0; k < length; k++)
            probs[k] = softmax_scale * dot(query + q * embed_dim, key + k * embed_dim);
        const double row_max = *std::max_element(probs.begin(), probs.end());
        double row_sum = 0;
        for (double &p : probs)
            row_sum += p = std::exp(p - row_max);
        for (int64_t k = 0; k < length; k++)
            for (int i = 0; i < head_dim; i++)
                out[q * embed_dim + i] += probs[k] / row_sum * value[k * embed_dim + i];
    }
}

} // namespace

std::vector<double> attention_f64(const Layer &layer, const std::vector<double> &input) {
    const Matrix query = linear(layer.query, input, embed_dim, embed_dim), key = linear(layer.key, input, embed_dim, embed_dim),
                 value = linear(layer.value, input, embed_dim, embed_dim);
    Matrix heads(input.size(), 0.0);
    const int64_t length = static_cast<int64_t>(input.size()) / embed_dim;
    for (int h = 0; h < num_heads; h++) {
        const int64_t column = h * head_dim;
        attend(query.data() + column, key.data() + column, value.data() + column, length, heads.data() + column);
    }
    return linear(layer.out, heads, embed_dim, embed_dim);
}

void rest_of_layer_f64(const Layer &layer, const std::vector<double> &attended, std::vector<double> *hidden) {
    add(attended, hidden);
    layer_norm(layer.attention_norm, hidden);
    Matrix wide = linear(layer.ffn_up, *hidden, embed_dim, ffn_dim);
    for (double &x : wide)
        x = 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    add(linear(layer.ffn_down, wide, ffn_dim, embed_dim), hidden);
    layer_norm(layer.ffn_norm, hidden);
}

EncodedF64 encode_f64(const Model &model, const int32_t *ids, int length) {
    EncodedF64 encoded;
    Matrix hidden(int64_t(length) * embed_dim);
    for (int t = 0; t < length; t++)
        for (int i = 0; i < embed_dim; i++)
            hidden[int64_t(t) * embed_dim + i] =
                double(model.word[int64_t(ids[t]) * embed_dim + i]) + model.token_type[i] + model.position[t * embed_dim + i];
    layer_norm(model.embedding_norm, &hidden);
    encoded.hidden[0] = hidden;
    for (int index = 0; index < num_layers; index++) {
        rest_of_layer_f64(model.layers[index], attention_f64(model.layers[index], hidden), &hidden);
        encoded.hidden[index + 1] = hidden;
    }
    encoded.embedding.assign(embed_dim, 0.0);
    for (size_t i = 0; i < hidden.size(); i++)
        encoded.embedding[i % embed_dim] += hidden[i];
    double norm = 0;
    for (double x : encoded.embedding)
        norm += x * x;
    for (double &x : encoded.embedding)
        x /= std::sqrt(norm);
    return encoded;
}

} // namespace minilm
