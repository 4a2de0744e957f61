// One output row in float64, straight from the inputs.
#include "reference_row.h"

#include <algorithm>
#include <cmath>

namespace bench {
namespace {

using Vector = std::vector<double>;

double dot(const double *a, const float *b, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

// Rows first..first+count of W x + b.
Vector project(const RowWeight &w, int64_t first, int64_t count, const Vector &x) {
    const int64_t width = static_cast<int64_t>(x.size());
    Vector y(count);
    for (int64_t n = 0; n < count; n++)
        y[n] = dot(x.data(), w.weight + (first + n) * width, width) + (w.bias ? w.bias[first + n] : 0);
    return y;
}

// logits -> probs, in place.
void softmax(Vector *logits) {
    if (logits->empty())
        return;
    const double row_max = *std::max_element(logits->begin(), logits->end());
    double row_sum = 0;
    for (double &x : *logits)
        row_sum += x = std::exp(x - row_max);
    for (double &x : *logits)
        x /= row_sum;
}

// sum over keys of probs * rows.
Vector weighted_sum(const Vector &probs, const float *rows, int64_t width) {
    Vector sum(width, 0.0);
    for (size_t k = 0; k < probs.size(); k++)
        for (int64_t i = 0; i < width; i++)
            sum[i] += probs[k] * rows[static_cast<int64_t>(k) * width + i];
    return sum;
}

} // namespace

std::vector<double> sdpa_row(const RowProblem &row) {
    const int64_t d = row.problem->head_dim;
    const Vector query(row.query, row.query + d);
    Vector probs(row.keys);
    for (int64_t k = 0; k < row.keys; k++)
        probs[k] = dot(query.data(), row.key + k * d, d) / std::sqrt(static_cast<double>(d));
    softmax(&probs);
    return weighted_sum(probs, row.value, row.problem->head_dim_v);
}

// The projections are linear, so key and value rows need not be projected one by one: q.(W_k x + b_k) = (W_k^T q).x + q.b_k, and
// sum p (W_v x + b_v) = W_v (sum p x) + b_v. A row costs H T D multiplications instead of T D^2.
std::vector<double> mha_row(const RowProblem &row) {
    const polyhead::Problem &p = *row.problem;
    const int64_t d = p.head_dim, d_v = p.head_dim_v, kdim = p.cross ? p.kdim : p.embed_dim, vdim = p.cross ? p.vdim : p.embed_dim;
    const Vector input(row.query, row.query + p.embed_dim);
    Vector heads;
    for (int64_t h = 0; h < p.num_heads; h++) {
        const int64_t h_kv = h / (p.num_heads / p.num_kv_heads);
        const Vector query = project(row.w_query, h * d, d, input);
        Vector seen(kdim, 0.0);
        double constant = 0;
        for (int64_t i = 0; i < d; i++) {
            const float *weight = row.w_key.weight + (h_kv * d + i) * kdim;
            for (int64_t j = 0; j < kdim; j++)
                seen[j] += query[i] * weight[j];
            if (row.w_key.bias)
                constant += query[i] * row.w_key.bias[h_kv * d + i];
        }
        Vector probs(row.keys);
        for (int64_t k = 0; k < row.keys; k++)
            probs[k] = (dot(seen.data(), row.key + k * kdim, kdim) + constant) / std::sqrt(static_cast<double>(d));
        softmax(&probs);
        Vector head = project(row.w_value, h_kv * d_v, d_v, weighted_sum(probs, row.value, vdim));
        if (row.keys == 0)
            std::fill(head.begin(), head.end(), 0.0); // nothing attended to: no bias either
        heads.insert(heads.end(), head.begin(), head.end());
    }
    return project(row.w_out, 0, p.embed_dim, heads);
}

std::vector<double> linear_row(const RowProblem &row) {
    return project(row.w_out, 0, row.problem->out_features, Vector(row.query, row.query + row.problem->embed_dim));
}

} // namespace bench
