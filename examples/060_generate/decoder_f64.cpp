// The model by its formulas, in float64.
#include "decoder_f64.h"

#include <algorithm>
#include <cmath>

namespace generate {
namespace {

using Rows = std::vector<double>;

// y [rows, out] = x [rows, in] W^T, eight rows at a time.
Rows product(const Rows &x, const std::vector<float> &matrix, int64_t out, int64_t in) {
    constexpr int64_t together = 8;
    const int64_t rows = static_cast<int64_t>(x.size()) / in;
    Rows y(static_cast<size_t>(rows * out)), columns(static_cast<size_t>(in * together));
    for (int64_t first = 0; first < rows; first += together) {
        const int64_t count = std::min(together, rows - first);
        for (int64_t k = 0; k < in; k++)
            for (int64_t j = 0; j < together; j++)
                columns[static_cast<size_t>(k * together + j)] = j < count ? x[static_cast<size_t>((first + j) * in + k)] : 0;
        for (int64_t n = 0; n < out; n++) {
            const float *weights = matrix.data() + n * in;
            double sums[together] = {};
            for (int64_t k = 0; k < in; k++)
                for (int64_t j = 0; j < together; j++)
                    sums[j] += weights[k] * columns[static_cast<size_t>(k * together + j)];
            for (int64_t j = 0; j < count; j++)
                y[static_cast<size_t>((first + j) * out + n)] = sums[j];
        }
    }
    return y;
}

Rows normalised(const Rows &x, const std::vector<float> &weights) {
    Rows y(x.size());
    for (size_t row = 0; row < x.size(); row += embed_dim) {
        double sum = 0;
        for (size_t i = 0; i < embed_dim; i++)
            sum += x[row + i] * x[row + i];
        for (size_t i = 0; i < embed_dim; i++)
            y[row + i] = x[row + i] / std::sqrt(sum / embed_dim + 1e-5) * weights[i];
    }
    return y;
}

// Rotates the head that begins at `head`, at this position.
void rotate(const Model &model, double *head, int64_t position) {
    constexpr int64_t half = head_dim / 2;
    for (int64_t i = 0; i < half; i++) {
        const double c = model.cos[static_cast<size_t>(position * half + i)], s = model.sin[static_cast<size_t>(position * half + i)];
        const double a = head[i], b = head[i + half];
        head[i] = a * c - b * s;
        head[i + half] = b * c + a * s;
    }
}

Rows attention(const Model &model, Rows qkv) {
    const int64_t rows = static_cast<int64_t>(qkv.size()) / qkv_dim;
    for (int64_t t = 0; t < rows; t++)
        for (int64_t h = 0; h < num_heads + num_kv_heads; h++) // the heads of query, then those of key
            rotate(model, qkv.data() + t * qkv_dim + h * head_dim, t);
    Rows out(static_cast<size_t>(rows * query_dim)), weights(static_cast<size_t>(rows));
    for (int64_t h = 0; h < num_heads; h++) {
        const int64_t kv = h / (num_heads / num_kv_heads);
        for (int64_t t = 0; t < rows; t++) {
            const double *query = qkv.data() + t * qkv_dim + h * head_dim;
            double largest = -INFINITY, sum = 0;
            for (int64_t n = 0; n <= t; n++) {
                const double *key = qkv.data() + n * qkv_dim + query_dim + kv * head_dim;
                double score = 0;
                for (int64_t i = 0; i < head_dim; i++)
                    score += query[i] * key[i];
                weights[static_cast<size_t>(n)] = score / std::sqrt(double(head_dim));
                largest = std::max(largest, weights[static_cast<size_t>(n)]);
            }
            double *row = out.data() + t * query_dim + h * head_dim;
            for (int64_t n = 0; n <= t; n++) {
                const double weight = std::exp(weights[static_cast<size_t>(n)] - largest);
                const double *value = qkv.data() + n * qkv_dim + query_dim + key_dim + kv * head_dim;
                sum += weight;
                for (int64_t i = 0; i < head_dim; i++)
                    row[i] += weight * value[i];
            }
            for (int64_t i = 0; i < head_dim; i++)
                row[i] /= sum;
        }
    }
    return out;
}

void add(const Rows &y, Rows *x) {
    for (size_t i = 0; i < y.size(); i++)
        (*x)[i] += y[i];
}

} // namespace

std::vector<double> exact_logits(const Model &model, const std::vector<int32_t> &tokens) {
    Rows x;
    for (int32_t token : tokens) {
        const float *row = model.embedding.data() + token * embed_dim;
        x.insert(x.end(), row, row + embed_dim);
    }
    for (const Layer &layer : model.layers) {
        const Rows joined = attention(model, product(normalised(x, layer.norm_attention), layer.qkv, qkv_dim, embed_dim));
        add(product(joined, layer.out, embed_dim, query_dim), &x);
        const Rows both = product(normalised(x, layer.norm_mlp), layer.gate_up, 2 * hidden_dim, embed_dim);
        Rows hidden;
        for (size_t row = 0; row < both.size(); row += 2 * hidden_dim)
            for (size_t i = row; i < row + hidden_dim; i++)
                hidden.push_back(both[i] / (1.0 + std::exp(-both[i])) * both[i + hidden_dim]);
        add(product(hidden, layer.down, embed_dim, hidden_dim), &x);
    }
    return product(normalised(x, model.norm), model.logits, vocabulary, embed_dim);
}

} // namespace generate
