// A consumer: runs the kernel consumer_attention on values whose answer is known, from CMake or by a plain compiler line.
#include <cmath>
#include <cstdio>
#include <vector>

#include <consumer_attention.h>
#include <polyhead/polyhead.h>
#if __has_include(<consumer_kernels.h>)
#include <consumer_kernels.h>
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
#else
bool set_is_complete() {
    return true;
}
#endif

} // namespace

int main() {
    const bool good = causal_mean() && set_is_complete();
    std::printf("consumer: %s\n", good ? "ok" : "wrong");
    return good ? 0 : 1;
}
