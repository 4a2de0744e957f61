// Attention as a plain double loop in float64, which the examples of user expressions are held against.
#ifndef POLYHEAD_EXAMPLES_PLAIN_ATTENTION_H
#define POLYHEAD_EXAMPLES_PLAIN_ATTENTION_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <vector>

#include <polyhead/polyhead.h>

namespace examples {

// Query, key, value and out, all [batch, heads, seq_len, head_dim].
struct Attention {
    int64_t batch, heads, seq_len, head_dim;
    std::vector<float> query, key, value, out;

    Attention(int64_t batch_, int64_t heads_, int64_t seq_len_, int64_t head_dim_)
        : batch(batch_), heads(heads_), seq_len(seq_len_), head_dim(head_dim_), query(numbers(1)), key(numbers(2)), value(numbers(3)),
          out(query.size()) {}

    polyhead::SdpaArgs args() {
        const auto seen = [this](std::vector<float> &tensor) { return polyhead::view(tensor.data(), {batch, heads, seq_len, head_dim}); };
        polyhead::SdpaArgs args;
        args.query = seen(query);
        args.key = seen(key);
        args.value = seen(value);
        args.out = seen(out);
        return args;
    }

    int64_t row(int64_t b, int64_t h, int64_t t) const { return ((b * heads + h) * seq_len + t) * head_dim; }

private:
    std::vector<float> numbers(int64_t seed) const {
        std::vector<float> values(static_cast<size_t>(batch * heads * seq_len * head_dim));
        for (size_t i = 0; i < values.size(); ++i) {
            values[i] = static_cast<float>((static_cast<int64_t>(i) * 7919 + seed * 104729) % 2003) / 500.0f - 2.0f;
        }
        return values;
    }
};

// What an expression says, in C++: the score of a pair, and whether it takes part.
struct Meaning {
    std::function<double(int64_t b, int64_t h, int64_t q, int64_t kv, double score)> score;
    std::function<bool(int64_t b, int64_t h, int64_t q, int64_t kv)> mask;
};

// One row of the result, by the definition: weights of all keys, then their mean of the values.
inline std::vector<double> plain_row(const Attention &a, const Meaning &meaning, int64_t b, int64_t h, int64_t q) {
    const double scale = 1.0 / std::sqrt(static_cast<double>(a.head_dim));
    std::vector<double> out(static_cast<size_t>(a.head_dim)), logits(static_cast<size_t>(a.seq_len), -INFINITY);
    double largest = -INFINITY, sum = 0;
    for (int64_t kv = 0; kv < a.seq_len; ++kv) {
        if (!meaning.mask(b, h, q, kv)) {
            continue;
        }
        double score = 0;
        for (int64_t d = 0; d < a.head_dim; ++d) {
            score += double(a.query[size_t(a.row(b, h, q) + d)]) * double(a.key[size_t(a.row(b, h, kv) + d)]);
        }
        logits[size_t(kv)] = meaning.score(b, h, q, kv, score * scale);
        largest = std::max(largest, logits[size_t(kv)]);
    }
    for (int64_t kv = 0; kv < a.seq_len; ++kv) {
        const double weight = largest == -INFINITY ? 0 : std::exp(logits[size_t(kv)] - largest);
        sum += weight;
        for (int64_t d = 0; d < a.head_dim; ++d) {
            out[size_t(d)] += weight * double(a.value[size_t(a.row(b, h, kv) + d)]);
        }
    }
    for (double &x : out) {
        x = sum > 0 ? x / sum : 0;
    }
    return out;
}

// Says how far `out` lies from the plain loop; 0 when that is rounding, 1 when not: what main() returns.
inline int compare(const Attention &a, const polyhead::Status &status, const Meaning &meaning) {
    double largest = 0;
    for (int64_t b = 0; b < a.batch; ++b) {
        for (int64_t h = 0; h < a.heads; ++h) {
            for (int64_t q = 0; q < a.seq_len; ++q) {
                const std::vector<double> row = plain_row(a, meaning, b, h, q);
                for (int64_t d = 0; d < a.head_dim; ++d) {
                    largest = std::max(largest, std::fabs(row[size_t(d)] - double(a.out[size_t(a.row(b, h, q) + d)])));
                }
            }
        }
    }
    const bool good = status.ok() && largest < 2e-5;
    std::printf("%s: %s%slargest difference to the plain loop %g\n", good ? "ok" : "wrong", status.message(), status.ok() ? "" : "; ",
                largest);
    return good ? 0 : 1;
}

} // namespace examples
#endif
