// A consumer: runs the kernel consumer_attention on values whose answer is known, from CMake or by a plain compiler line.
#include <cmath>
#include <cstdio>
#include <vector>

#include <consumer_attention.h>
#include <polyhead/polyhead.h>
#if __has_include(<consumer_kernels.h>)
#include <consumer_kernels.h>
#include <consumer_training.h>
#include <consumer_training_backward.h>
#define HAS_SET 1
#endif

namespace {

// With equal keys every query takes the mean of the values it sees: 0, 1, ..., t gives t / 2.
bool causal_mean() {
    const int64_t heads = 4, kv_heads = 2, seq_len = 37, head_dim = 16;
    std::vector<float> query(heads * seq_len * head_dim, 0.25f), key(kv_heads * seq_len * head_dim, 1.0f), value(key.size());
    std::vector<float> out(query.size(), NAN);
    for (size_t i = 0; i < value.size(); i++) {
        value[i] = static_cast<float>(i / head_dim % seq_len);
    }
    polyhead::SdpaArgs args;
    args.query = polyhead::view(query.data(), {1, heads, seq_len, head_dim});
    args.key = polyhead::view(key.data(), {1, kv_heads, seq_len, head_dim});
    args.value = polyhead::view(value.data(), {1, kv_heads, seq_len, head_dim});
    args.out = polyhead::view(out.data(), {1, heads, seq_len, head_dim});
    const polyhead::Status status = consumer_attention.run(args);
    if (!status.ok()) {
        std::printf("run: %s\n", status.message());
        return false;
    }
    for (size_t i = 0; i < out.size(); i++) {
        const float expected = static_cast<float>(i / head_dim % seq_len) / 2;
        if (!(std::fabs(out[i] - expected) < 1e-4f)) {
            std::printf("out[%zu] is %g, expected %g\n", i, out[i], expected);
            return false;
        }
    }
    return true;
}

#ifdef HAS_SET
bool set_is_complete() {
    return consumer_kernels_count == 3 &&
           polyhead::find_kernel(consumer_kernels, consumer_kernels_count, consumer_layer.problem) == &consumer_layer;
}

// Equal keys and a sink of the same logit: each of n keys, and the sink, has the weight 1 / (n + 1). Then a value of 1 gives out = n / (n +
// 1).
bool trains() {
    const int64_t heads = 2, seq_len = 5, head_dim = 8;
    const std::vector<float> query(heads * seq_len * head_dim, 0.0f), ones(query.size(), 1.0f), sinks(heads, 0.0f);
    std::vector<float> out(query.size()), lse(heads * seq_len), grad_query(query.size(), NAN), grad_key(grad_query), grad_value(grad_query);
    std::vector<float> grad_sinks(heads, NAN);
    const auto heads_of = [&](const auto &floats) { return polyhead::view(floats.data(), {1, heads, seq_len, head_dim}); };
    const auto written = [&](auto &floats) { return polyhead::view(floats.data(), {1, heads, seq_len, head_dim}); };
    polyhead::SdpaArgs forward;
    forward.query = heads_of(query);
    forward.key = forward.value = heads_of(ones);
    forward.sinks = polyhead::view(sinks.data(), {heads});
    forward.out = written(out);
    forward.lse = polyhead::view(lse.data(), {1, heads, seq_len});
    polyhead::SdpaBackwardArgs backward;
    backward.query = forward.query;
    backward.key = backward.value = backward.grad_out = forward.key;
    backward.sinks = forward.sinks;
    backward.out = heads_of(static_cast<const std::vector<float> &>(out));
    backward.lse = polyhead::view(static_cast<const std::vector<float> &>(lse).data(), {1, heads, seq_len});
    backward.grad_query = written(grad_query);
    backward.grad_key = written(grad_key);
    backward.grad_value = written(grad_value);
    backward.grad_sinks = polyhead::view(grad_sinks.data(), {heads});
    for (const polyhead::Status &status : {consumer_training.run(forward), consumer_training_backward.run(backward)}) {
        if (!status.ok()) {
            std::printf("run: %s\n", status.message());
            return false;
        }
    }
    const auto near = [](float found, float expected) { return std::fabs(found - expected) < 1e-5f; };
    const float share = 1.0f / (seq_len + 1);
    const bool good = near(out[0], seq_len * share) && near(grad_value[0], seq_len * share) &&
                      near(grad_sinks[1], -share * head_dim * seq_len * seq_len * share) &&
                      near(grad_query[0], head_dim * share * share * seq_len / std::sqrt(8.0f));
    std::printf(good ? "" : "gradients: found %g, %g, %g\n", grad_value[0], grad_sinks[1], grad_query[0]);
    return good;
}
#else
bool set_is_complete() {
    return true;
}
bool trains() {
    return true;
}
#endif

} // namespace

int main() {
    const bool good = causal_mean() && set_is_complete() && trains();
    std::printf("consumer: %s\n", good ? "ok" : "wrong");
    return good ? 0 : 1;
}
