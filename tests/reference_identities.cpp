// The reference against identities of attention and against other orders of evaluation.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "instruments/calls/dense.h"
#include "instruments/calls/problems.h"
#include "support/catch.h"
#include "support/difference.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

constexpr double tight = 1e-12;

// A random sdpa call that owns its tensors.
struct Call {
    Problem problem;
    int64_t batch, rows, keys;
    std::vector<float> query, key, value;

    Call(const Problem &p, int64_t batch_, int64_t rows_, int64_t keys_, uint64_t seed)
        : problem(p), batch(batch_), rows(rows_), keys(keys_) {
        Random random(seed);
        query = normal_vector(random, batch * p.num_heads * rows * p.head_dim);
        key = normal_vector(random, batch * p.num_kv_heads * keys * p.head_dim);
        value = normal_vector(random, batch * p.num_kv_heads * keys * p.head_dim_v);
    }
    polyhead_args args() const { return sdpa_args(problem, batch, query, key, value); }
    Answer<double> answer() const { return truth(problem, args()); }
};

// Sum with Kahan's compensation.
struct Kahan {
    long double sum = 0, lost = 0;
    void add(long double term) {
        const long double y = term - lost, t = sum + y;
        lost = (t - sum) - y;
        sum = t;
    }
};

// One output element in long double, keys from last to first, without subtracting the maximum.
double other_order(const Call &c, int64_t b, int64_t h, int64_t q, int64_t dv) {
    const Problem &p = c.problem;
    const int64_t hkv = h / (p.num_heads / p.num_kv_heads);
    Kahan weighted, total;
    for (int64_t n = c.keys - 1; n >= 0; n--) {
        Kahan score;
        for (int64_t d = p.head_dim - 1; d >= 0; d--) {
            score.add(static_cast<long double>(c.query[((b * p.num_heads + h) * c.rows + q) * p.head_dim + d]) *
                      c.key[((b * p.num_kv_heads + hkv) * c.keys + n) * p.head_dim + d]);
        }
        const long double weight = std::exp(score.sum / std::sqrt(static_cast<long double>(p.head_dim)));
        total.add(weight);
        weighted.add(weight * c.value[((b * p.num_kv_heads + hkv) * c.keys + n) * p.head_dim_v + dv]);
    }
    return static_cast<double>(weighted.sum / total.sum);
}

} // namespace

TEST_CASE("reference: one key gives its value and its logit") {
    const Call c(sdpa_problem(3, 5), 2, 4, 1, 11);
    const Answer<double> answer = c.answer();
    for (size_t i = 0; i < answer.out.size(); i++) {
        const size_t head = i / 20, dv = i % 5;
        CHECK(answer.out[i] == static_cast<double>(c.value[head * 5 + dv]));
    }
}

TEST_CASE("reference: equal logits give the mean, and lse is ln(keys)") {
    Call c(sdpa_problem(2, 6, 0, 3), 1, 2, 9, 12);
    std::fill(c.query.begin(), c.query.end(), 0.0f);
    const Answer<double> answer = c.answer();
    for (size_t h = 0; h < 2; h++) {
        for (size_t dv = 0; dv < 3; dv++) {
            double mean = 0;
            for (size_t n = 0; n < 9; n++) {
                mean += static_cast<double>(c.value[(h * 9 + n) * 3 + dv]) / 9;
            }
            CHECK(std::abs(answer.out[h * 6 + dv] - mean) < tight);
        }
        CHECK(std::abs(answer.lse[h * 2] - std::log(9.0)) < tight);
    }
}

TEST_CASE("reference: the order of the keys does not matter") {
    const Call c(sdpa_problem(2, 7, 1, 4), 2, 3, 40, 13);
    Call reversed = c;
    for (int64_t b = 0; b < 2; b++) {
        for (int64_t n = 0; n < 40; n++) {
            std::copy_n(&c.key[(b * 40 + n) * 7], 7, &reversed.key[(b * 40 + 39 - n) * 7]);
            std::copy_n(&c.value[(b * 40 + n) * 4], 4, &reversed.value[(b * 40 + 39 - n) * 4]);
        }
    }
    CHECK(largest_difference(c.answer().out, reversed.answer().out) < tight);
    CHECK(largest_difference(c.answer().lse, reversed.answer().lse) < tight);
}

TEST_CASE("reference: one vector added to all keys moves lse and nothing else") {
    Call c(sdpa_problem(1, 4), 1, 5, 17, 14);
    for (float &x : c.key) {
        x = std::round(x * 64) / 64; // so that the sums below are exact
    }
    Call moved = c;
    const float shift[4] = {0.5f, -1.25f, 2.0f, 0.75f};
    for (size_t i = 0; i < moved.key.size(); i++) {
        moved.key[i] += shift[i % 4];
    }
    const Answer<double> before = c.answer(), after = moved.answer();
    CHECK(largest_difference(before.out, after.out) < tight);
    for (size_t q = 0; q < 5; q++) {
        double dot = 0;
        for (size_t d = 0; d < 4; d++) {
            dot += static_cast<double>(c.query[q * 4 + d]) * static_cast<double>(shift[d]);
        }
        CHECK(std::abs(after.lse[q] - before.lse[q] - dot / 2) < tight);
    }
}

TEST_CASE("reference: two parts of the keys merge by their lse") {
    const Call c(sdpa_problem(1, 8, 0, 3), 1, 6, 50, 15);
    const auto part = [&c](int64_t begin, int64_t end) {
        Call piece = c;
        piece.keys = end - begin;
        piece.key.assign(c.key.begin() + begin * 8, c.key.begin() + end * 8);
        piece.value.assign(c.value.begin() + begin * 3, c.value.begin() + end * 3);
        return piece.answer();
    };
    const Answer<double> whole = c.answer(), left = part(0, 19), right = part(19, 50);
    for (size_t q = 0; q < 6; q++) {
        const double lse = std::log(std::exp(left.lse[q]) + std::exp(right.lse[q]));
        CHECK(std::abs(whole.lse[q] - lse) < tight);
        for (size_t dv = 0; dv < 3; dv++) {
            const double merged = left.out[q * 3 + dv] * std::exp(left.lse[q] - lse) + right.out[q * 3 + dv] * std::exp(right.lse[q] - lse);
            CHECK(std::abs(whole.out[q * 3 + dv] - merged) < tight);
        }
    }
}

TEST_CASE("reference: another order of evaluation in long double agrees") {
    const Call c(sdpa_problem(4, 19, 2, 5), 2, 3, 70, 16);
    const Answer<double> answer = c.answer();
    for (int64_t b = 0; b < 2; b++) {
        for (int64_t h = 0; h < 4; h++) {
            for (int64_t q = 0; q < 3; q++) {
                for (int64_t dv = 0; dv < 5; dv++) {
                    CHECK(std::abs(answer.out[((b * 4 + h) * 3 + q) * 5 + dv] - other_order(c, b, h, q, dv)) < tight);
                }
            }
        }
    }
}

TEST_CASE("reference: strides are honoured") {
    const Call c(sdpa_problem(3, 4), 2, 5, 6, 17);
    std::vector<float> bshd(c.query.size());
    for (int64_t b = 0; b < 2; b++) {
        for (int64_t h = 0; h < 3; h++) {
            for (int64_t q = 0; q < 5; q++) {
                std::copy_n(&c.query[((b * 3 + h) * 5 + q) * 4], 4, &bshd[((b * 5 + q) * 3 + h) * 4]);
            }
        }
    }
    polyhead_args args = c.args();
    args.query.data = bshd.data();
    args.query.stride[1] = 4;
    args.query.stride[2] = 12;
    CHECK(truth(c.problem, args).out == c.answer().out);
}

TEST_CASE("reference: sampled rows are the rows of the full evaluation, first and last among them") {
    const Call c(sdpa_problem(2, 8), 2, 100, 90, 18);
    const RowSets rows = sample_rows(c.problem, c.args(), 5, 1e5);
    const Answer<double> all = c.answer(), some = evaluate<double>(c.problem, c.args(), {}, rows);
    REQUIRE(rows.size() == 4);
    CHECK(rows[0] != rows[1]);
    for (size_t group = 0; group < 4; group++) {
        CHECK(rows[group].size() < 100);
        CHECK(rows[group].front() == 0);
        CHECK(rows[group].back() == 99);
        for (int64_t q : rows[group]) {
            const size_t first = (group * 100 + static_cast<size_t>(q)) * 8;
            CHECK(std::equal(&all.out[first], &all.out[first] + 8, &some.out[first]));
        }
    }
}

TEST_CASE("reference: the plain f32 formula is near the truth and not equal to it") {
    const Call c(sdpa_problem(2, 64), 1, 9, 200, 19);
    const Answer<double> truth_answer = c.answer();
    const Answer<float> plain = evaluate<float>(c.problem, c.args(), {}, all_rows(c.problem, c.args()));
    double largest = 0;
    for (size_t i = 0; i < plain.out.size(); i++) {
        largest = std::max(largest, std::abs(static_cast<double>(plain.out[i]) - truth_answer.out[i]));
    }
    CHECK(largest > 1e-9);
    CHECK(largest < 1e-5);
}
