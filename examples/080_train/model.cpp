// The decoder: norms, embeddings and the loss; what takes time is in Parts.
#include "model.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace train {
namespace {

constexpr double epsilon = 1e-6;

// x / sqrt(mean(x^2) + epsilon) * weight, row by row.
template <class Real> Vector<Real> norm(const Vector<Real> &x, const Vector<Real> &weight) {
    Vector<Real> y(x.size());
    for (size_t row = 0; row < x.size(); row += width) {
        Real squares = 0;
        for (size_t i = 0; i < width; i++) {
            squares += x[row + i] * x[row + i];
        }
        const Real factor = 1 / std::sqrt(squares / width + Real(epsilon));
        for (size_t i = 0; i < width; i++) {
            y[row + i] = x[row + i] * factor * weight[i];
        }
    }
    return y;
}

template <class Real>
void norm_backward(const Vector<Real> &x, const Vector<Real> &weight, const Vector<Real> &grad_y, Vector<Real> *grad_x,
                   Vector<Real> *grad_weight) {
    for (size_t row = 0; row < x.size(); row += width) {
        Real squares = 0, products = 0;
        for (size_t i = 0; i < width; i++) {
            squares += x[row + i] * x[row + i];
            products += x[row + i] * weight[i] * grad_y[row + i];
        }
        const Real factor = 1 / std::sqrt(squares / width + Real(epsilon)), share = products * factor * factor / width;
        for (size_t i = 0; i < width; i++) {
            (*grad_x)[row + i] += factor * (weight[i] * grad_y[row + i] - x[row + i] * share);
            (*grad_weight)[i] += grad_y[row + i] * x[row + i] * factor;
        }
    }
}

template <class Real> void add(const Vector<Real> &x, Vector<Real> *to) {
    for (size_t i = 0; i < x.size(); i++) {
        (*to)[i] += x[i];
    }
}

// What the gradients need of a layer.
template <class Real> struct Kept {
    Vector<Real> x, normed_1, qkv, context, lse, middle, normed_2, up;
};

template <class Real> Vector<Real> through(const Layer<Real> &l, Vector<Real> x, int64_t batch, Parts<Real> &parts, Kept<Real> *k) {
    k->x = x;
    k->normed_1 = norm(x, l.norm_1);
    k->qkv = parts.linear(k->normed_1, l.qkv, width, 3 * width);
    parts.attention(k->qkv, batch, &k->context, &k->lse);
    add(parts.linear(k->context, l.out, width, width), &x);
    k->middle = x;
    k->normed_2 = norm(x, l.norm_2);
    k->up = parts.linear(k->normed_2, l.up, width, hidden);
    Vector<Real> active = k->up;
    for (Real &value : active) {
        value = std::max(value, Real(0));
    }
    add(parts.linear(active, l.down, hidden, width), &x);
    return x;
}

template <class Real>
void back_through(const Layer<Real> &l, const Kept<Real> &k, int64_t batch, Parts<Real> &parts, Vector<Real> *grad, Layer<Real> *grads) {
    Vector<Real> active = k.up, grad_active, grad_normed, grad_context;
    for (Real &value : active) {
        value = std::max(value, Real(0));
    }
    parts.linear_backward(active, l.down, *grad, hidden, width, &grad_active, &grads->down);
    for (size_t i = 0; i < grad_active.size(); i++) {
        grad_active[i] = k.up[i] > 0 ? grad_active[i] : Real(0);
    }
    parts.linear_backward(k.normed_2, l.up, grad_active, width, hidden, &grad_normed, &grads->up);
    norm_backward(k.middle, l.norm_2, grad_normed, grad, &grads->norm_2);
    parts.linear_backward(k.context, l.out, *grad, width, width, &grad_context, &grads->out);
    const Vector<Real> grad_qkv = parts.attention_backward(k.qkv, k.context, k.lse, grad_context, batch);
    parts.linear_backward(k.normed_1, l.qkv, grad_qkv, width, 3 * width, &grad_normed, &grads->qkv);
    norm_backward(k.x, l.norm_1, grad_normed, grad, &grads->norm_1);
}

template <class Real> Vector<Real> embedded(const Weights<Real> &w, const std::vector<int32_t> &input) {
    Vector<Real> x(input.size() * width);
    for (size_t t = 0; t < input.size(); t++) {
        for (size_t i = 0; i < width; i++) {
            x[t * width + i] = w.embedding[size_t(input[t]) * width + i] + w.position[t % tokens * width + i];
        }
    }
    return x;
}

// The mean loss, and its gradient by the logits in their place.
template <class Real> Real cross_entropy(const std::vector<int32_t> &target, Vector<Real> *logits) {
    const auto asked = std::count_if(target.begin(), target.end(), [](int32_t symbol) { return symbol >= 0; });
    Real loss = 0;
    for (size_t t = 0; t < target.size(); t++) {
        Real *const row = logits->data() + t * vocabulary;
        const Real largest = *std::max_element(row, row + vocabulary);
        Real sum = 0;
        for (int64_t i = 0; i < vocabulary; i++) {
            sum += std::exp(row[i] - largest);
        }
        loss += target[t] < 0 ? 0 : largest + std::log(sum) - row[target[t]];
        for (int64_t i = 0; i < vocabulary; i++) {
            const Real share = std::exp(row[i] - largest) / sum - Real(i == target[t]);
            row[i] = target[t] < 0 ? 0 : share / Real(asked);
        }
    }
    return loss / Real(asked);
}

} // namespace

Weights<float> first_weights(uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto normal = [&random](int64_t rows, int64_t columns, double deviation) {
        std::normal_distribution<double> values(0.0, deviation);
        Vector<float> v(size_t(rows * columns));
        std::generate(v.begin(), v.end(), [&] { return float(values(random)); });
        return v;
    };
    const double of_width = 1 / std::sqrt(double(width)), residual = 1 / std::sqrt(2.0 * layers);
    Weights<float> w;
    w.embedding = normal(vocabulary, width, 0.5);
    w.position = normal(tokens, width, 0.5);
    w.norm.assign(width, 1.0f);
    w.head = normal(vocabulary, width, of_width);
    for (Layer<float> &l : w.layer) {
        l.norm_1.assign(width, 1.0f);
        l.norm_2 = l.norm_1;
        l.qkv = normal(3 * width, width, of_width);
        l.out = normal(width, width, of_width * residual);
        l.up = normal(hidden, width, of_width);
        l.down = normal(width, hidden, residual / std::sqrt(double(hidden)));
    }
    return w;
}

Weights<double> in_double(Weights<float> weights) {
    std::vector<Vector<double>> all;
    for_each(weights, [&](const Vector<float> &v) { all.emplace_back(v.begin(), v.end()); });
    Weights<double> result;
    size_t next = 0;
    for_each(result, [&](Vector<double> &v) { v = all[next++]; });
    return result;
}

template <class Real> Vector<Real> logits_of(Weights<Real> &w, const std::vector<int32_t> &input, Parts<Real> &parts) {
    Vector<Real> x = embedded(w, input);
    Kept<Real> kept;
    for (const Layer<Real> &l : w.layer) {
        x = through(l, x, int64_t(input.size()) / tokens, parts, &kept);
    }
    return parts.linear(norm(x, w.norm), w.head, width, vocabulary);
}

template <class Real> Real gradients(Weights<Real> &w, const Batch &batch, Parts<Real> &parts, Weights<Real> *grads) {
    *grads = w;
    for_each(*grads, [](Vector<Real> &v) { std::fill(v.begin(), v.end(), Real(0)); });
    Kept<Real> kept[layers];
    Vector<Real> x = embedded(w, batch.input);
    for (int64_t i = 0; i < layers; i++) {
        x = through(w.layer[i], x, batch.size(), parts, &kept[i]);
    }
    const Vector<Real> normed = norm(x, w.norm);
    Vector<Real> logits = parts.linear(normed, w.head, width, vocabulary), grad_normed, grad(x.size(), Real(0));
    const Real loss = cross_entropy(batch.target, &logits);
    parts.linear_backward(normed, w.head, logits, width, vocabulary, &grad_normed, &grads->head);
    norm_backward(x, w.norm, grad_normed, &grad, &grads->norm);
    for (int64_t i = layers; i-- > 0;) {
        back_through(w.layer[i], kept[i], batch.size(), parts, &grad, &grads->layer[i]);
    }
    for (size_t t = 0; t < batch.input.size(); t++) {
        for (size_t i = 0; i < width; i++) {
            grads->embedding[size_t(batch.input[t]) * width + i] += grad[t * width + i];
            grads->position[t % tokens * width + i] += grad[t * width + i];
        }
    }
    return loss;
}

template Vector<float> logits_of(Weights<float> &, const std::vector<int32_t> &, Parts<float> &);
template float gradients(Weights<float> &, const Batch &, Parts<float> &, Weights<float> *);
template double gradients(Weights<double> &, const Batch &, Parts<double> &, Weights<double> *);

} // namespace train
