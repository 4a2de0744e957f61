// The parts of the model: kernels of polyhead in f32, and plain loops in float64 to compare them with.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include <polyhead/polyhead.h>
#include <train_attention.h>
#include <train_attention_backward.h>
#include <train_narrow.h>
#include <train_narrow_backward.h>
#include <train_square.h>
#include <train_square_backward.h>
#include <train_widen.h>
#include <train_widen_backward.h>

#include "model.h"

namespace train {
namespace {

void expect(const polyhead::Status &status) {
    if (!status.ok()) {
        std::fprintf(stderr, "%s\n", status.message());
        std::exit(1);
    }
}

// Query (0), key (1) or value (2) of rows [B,T,3,H,d], as [B,H,T,d]: a view, without a copy.
polyhead::MutableTensorView heads_of(float *qkv, int64_t which, int64_t batch) {
    polyhead::MutableTensorView view = polyhead::view(qkv + which * width, {batch, heads, tokens, head_dim});
    const int64_t strides[] = {tokens * 3 * width, head_dim, 3 * width, 1};
    std::copy(std::begin(strides), std::end(strides), view.stride);
    return view;
}
polyhead::MutableTensorView heads_of_context(float *context, int64_t batch) {
    return polyhead::from_bsd(polyhead::view(context, {batch, tokens, width}), heads);
}

const polyhead::Kernel &linear_kernel(int64_t in, int64_t out) {
    return in < out ? train_widen : in > out ? train_narrow : train_square;
}
const polyhead::Kernel &linear_backward_kernel(int64_t in, int64_t out) {
    return in < out ? train_widen_backward : in > out ? train_narrow_backward : train_square_backward;
}

struct Kernels : Parts<float> {
    Vector<float> linear(const Vector<float> &x, const Vector<float> &weight, int64_t in, int64_t out) override {
        const int64_t rows = int64_t(x.size()) / in;
        polyhead::WeightTensors tensors;
        tensors.out_proj = polyhead::view(weight.data(), {out, in});
        polyhead::Weights packed; // a step of training changes the weights
        expect(linear_kernel(in, out).pack(tensors, &packed));
        Vector<float> y(size_t(rows * out));
        polyhead::LinearArgs args;
        args.input = polyhead::view(x.data(), {rows, in});
        args.weights = &packed;
        args.out = polyhead::view(y.data(), {rows, out});
        expect(linear_kernel(in, out).run(args));
        return y;
    }

    void linear_backward(const Vector<float> &x, const Vector<float> &weight, const Vector<float> &grad_y, int64_t in, int64_t out,
                         Vector<float> *grad_x, Vector<float> *grad_weight) override {
        const int64_t rows = int64_t(x.size()) / in;
        grad_x->resize(x.size());
        polyhead::LinearBackwardArgs args;
        args.input = polyhead::view(x.data(), {rows, in});
        args.weight = polyhead::view(weight.data(), {out, in});
        args.grad_out = polyhead::view(grad_y.data(), {rows, out});
        args.grad_input = polyhead::view(grad_x->data(), {rows, in});
        args.grad_weight = polyhead::view(grad_weight->data(), {out, in});
        expect(linear_backward_kernel(in, out).run(args));
    }

    void attention(const Vector<float> &qkv, int64_t batch, Vector<float> *context, Vector<float> *lse) override {
        context->resize(size_t(batch * tokens * width));
        lse->resize(size_t(batch * heads * tokens));
        polyhead::SdpaArgs args;
        auto *const rows = const_cast<float *>(qkv.data()); // inputs are only read
        args.query = heads_of(rows, 0, batch);
        args.key = heads_of(rows, 1, batch);
        args.value = heads_of(rows, 2, batch);
        args.out = heads_of_context(context->data(), batch);
        args.lse = polyhead::view(lse->data(), {batch, heads, tokens});
        expect(train_attention.run(args));
    }

    Vector<float> attention_backward(const Vector<float> &qkv, const Vector<float> &context, const Vector<float> &lse,
                                     const Vector<float> &grad_context, int64_t batch) override {
        Vector<float> grads(qkv.size());
        polyhead::SdpaBackwardArgs args;
        auto *const rows = const_cast<float *>(qkv.data());
        args.query = heads_of(rows, 0, batch);
        args.key = heads_of(rows, 1, batch);
        args.value = heads_of(rows, 2, batch);
        args.out = heads_of_context(const_cast<float *>(context.data()), batch);
        args.lse = polyhead::view(lse.data(), {batch, heads, tokens});
        args.grad_out = heads_of_context(const_cast<float *>(grad_context.data()), batch);
        args.grad_query = heads_of(grads.data(), 0, batch);
        args.grad_key = heads_of(grads.data(), 1, batch);
        args.grad_value = heads_of(grads.data(), 2, batch);
        expect(train_attention_backward.run(args));
        return grads;
    }
};

struct PlainLoops : Parts<double> {
    Vector<double> linear(const Vector<double> &x, const Vector<double> &weight, int64_t in, int64_t out) override {
        const int64_t rows = int64_t(x.size()) / in;
        Vector<double> y(size_t(rows * out), 0.0);
        for (int64_t m = 0; m < rows; m++) {
            for (int64_t n = 0; n < out; n++) {
                for (int64_t k = 0; k < in; k++) {
                    y[size_t(m * out + n)] += x[size_t(m * in + k)] * weight[size_t(n * in + k)];
                }
            }
        }
        return y;
    }

    void linear_backward(const Vector<double> &x, const Vector<double> &weight, const Vector<double> &grad_y, int64_t in, int64_t out,
                         Vector<double> *grad_x, Vector<double> *grad_weight) override {
        grad_x->assign(x.size(), 0.0);
        for (int64_t m = 0; m < int64_t(x.size()) / in; m++) {
            for (int64_t n = 0; n < out; n++) {
                const double g = grad_y[size_t(m * out + n)];
                for (int64_t k = 0; k < in; k++) {
                    (*grad_x)[size_t(m * in + k)] += g * weight[size_t(n * in + k)];
                    (*grad_weight)[size_t(n * in + k)] += g * x[size_t(m * in + k)];
                }
            }
        }
    }

    // Entry of query, key or value (0, 1, 2).
    static size_t place(int64_t b, int64_t t, int64_t which, int64_t h) {
        return size_t(((b * tokens + t) * 3 + which) * width + h * head_dim);
    }
    static size_t place_of_context(int64_t b, int64_t t, int64_t h) { return size_t((b * tokens + t) * width + h * head_dim); }

    template <class Row> static void for_each_row(int64_t batch, const Row &row) {
        for (int64_t b = 0; b < batch; b++) {
            for (int64_t h = 0; h < heads; h++) {
                for (int64_t q = 0; q < tokens; q++) {
                    row(b, h, q);
                }
            }
        }
    }
    static double dot(const double *a, const double *b) {
        double sum = 0;
        for (int64_t i = 0; i < head_dim; i++) {
            sum += a[i] * b[i];
        }
        return sum;
    }
    static void add(double factor, const double *from, double *to) {
        for (int64_t i = 0; i < head_dim; i++) {
            to[i] += factor * from[i];
        }
    }
    static double score(const Vector<double> &qkv, int64_t b, int64_t h, int64_t q, int64_t k) {
        return dot(&qkv[place(b, q, 0, h)], &qkv[place(b, k, 1, h)]) / std::sqrt(double(head_dim));
    }

    void attention(const Vector<double> &qkv, int64_t batch, Vector<double> *context, Vector<double> *lse) override {
        context->assign(size_t(batch * tokens * width), 0.0);
        lse->assign(size_t(batch * heads * tokens), 0.0);
        for_each_row(batch, [&](int64_t b, int64_t h, int64_t q) {
            double sum = 0;
            for (int64_t k = 0; k <= q; k++) {
                sum += std::exp(score(qkv, b, h, q, k));
            }
            for (int64_t k = 0; k <= q; k++) {
                add(std::exp(score(qkv, b, h, q, k)) / sum, &qkv[place(b, k, 2, h)], &(*context)[place_of_context(b, q, h)]);
            }
            (*lse)[size_t((b * heads + h) * tokens + q)] = std::log(sum);
        });
    }

    Vector<double> attention_backward(const Vector<double> &qkv, const Vector<double> &context, const Vector<double> &lse,
                                      const Vector<double> &grad_context, int64_t batch) override {
        Vector<double> grads(qkv.size(), 0.0);
        for_each_row(batch, [&](int64_t b, int64_t h, int64_t q) {
            const double *const grad = &grad_context[place_of_context(b, q, h)], delta = dot(grad, &context[place_of_context(b, q, h)]);
            for (int64_t k = 0; k <= q; k++) {
                const double weight = std::exp(score(qkv, b, h, q, k) - lse[size_t((b * heads + h) * tokens + q)]);
                const double of_score = weight * (dot(grad, &qkv[place(b, k, 2, h)]) - delta) / std::sqrt(double(head_dim));
                add(weight, grad, &grads[place(b, k, 2, h)]);
                add(of_score, &qkv[place(b, k, 1, h)], &grads[place(b, q, 0, h)]);
                add(of_score, &qkv[place(b, q, 0, h)], &grads[place(b, k, 1, h)]);
            }
        });
        return grads;
    }
};

} // namespace

Parts<float> &kernels() {
    static Kernels parts;
    return parts;
}

Parts<double> &plain_loops() {
    static PlainLoops parts;
    return parts;
}

} // namespace train
