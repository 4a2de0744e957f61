// A two-layer decoder and its gradients, over numbers of one type: float with kernels of polyhead, double with plain loops.
#ifndef POLYHEAD_EXAMPLES_TRAIN_MODEL_H
#define POLYHEAD_EXAMPLES_TRAIN_MODEL_H

#include <cstdint>
#include <vector>

namespace train {

constexpr int64_t symbols = 16, separator = symbols, vocabulary = 64; // of which 17 are used: the width of a layer
constexpr int64_t length = 16, tokens = 2 * length;                   // a string, the separator, and its reverse but for the last symbol
constexpr int64_t width = 64, heads = 4, head_dim = width / heads, hidden = 3 * width, layers = 2;

template <class Real> using Vector = std::vector<Real>;

// Weights as nn.Linear stores them: [out_features, in_features].
template <class Real> struct Layer {
    Vector<Real> norm_1, qkv, out, norm_2, up, down;
};
template <class Real> struct Weights {
    Vector<Real> embedding, position, norm, head;
    Layer<Real> layer[layers];
};

// Calls visit(vector) for every vector of weights, always in one order.
template <class Real, class Visit> void for_each(Weights<Real> &w, const Visit &visit) {
    for (Vector<Real> *v : {&w.embedding, &w.position, &w.norm, &w.head}) {
        visit(*v);
    }
    for (Layer<Real> &l : w.layer) {
        for (Vector<Real> *v : {&l.norm_1, &l.qkv, &l.out, &l.norm_2, &l.up, &l.down}) {
            visit(*v);
        }
    }
}

// What a model is made of: y = x W^T, causal attention over rows [B,T,3,H,d], and their gradients.
template <class Real> struct Parts {
    virtual ~Parts() = default;
    virtual Vector<Real> linear(const Vector<Real> &x, const Vector<Real> &weight, int64_t in, int64_t out) = 0;
    virtual void linear_backward(const Vector<Real> &x, const Vector<Real> &weight, const Vector<Real> &grad_y, int64_t in, int64_t out,
                                 Vector<Real> *grad_x, Vector<Real> *grad_weight) = 0;
    virtual void attention(const Vector<Real> &qkv, int64_t batch, Vector<Real> *context, Vector<Real> *lse) = 0;
    virtual Vector<Real> attention_backward(const Vector<Real> &qkv, const Vector<Real> &context, const Vector<Real> &lse,
                                            const Vector<Real> &grad_context, int64_t batch) = 0;
};

struct Batch {
    std::vector<int32_t> input, target; // [B,T]; target -1: not asked
    int64_t size() const { return int64_t(input.size()) / tokens; }
};

Weights<float> first_weights(uint64_t seed);
Weights<double> in_double(Weights<float> weights);
// Probabilities of the next symbol, as logits [B,T,vocabulary].
template <class Real> Vector<Real> logits_of(Weights<Real> &weights, const std::vector<int32_t> &input, Parts<Real> &parts);
// The mean cross entropy of the targets, and its gradients.
template <class Real> Real gradients(Weights<Real> &weights, const Batch &batch, Parts<Real> &parts, Weights<Real> *grads);

Parts<float> &kernels(); // of polyhead
Parts<double> &plain_loops();

} // namespace train
#endif
