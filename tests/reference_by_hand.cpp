// The reference against cases small enough to compute by hand.
#include <cmath>
#include <limits>

#include "instruments/calls/dense.h"
#include "instruments/calls/problems.h"
#include "instruments/reference/tolerance.h"
#include "instruments/reference/visibility.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

const double infinity = std::numeric_limits<double>::infinity();
const float log3 = std::log(3.0f);

} // namespace

TEST_CASE("reference: two keys with logits 0 and ln 3 weigh 1/4 and 3/4") {
    const Problem p = sdpa_problem(1, 1);
    const std::vector<float> query = {1}, key = {0, log3}, value = {0, 4};
    const Answer<double> answer = truth(p, sdpa_args(p, 1, query, key, value));
    CHECK(answer.out[0] == Approx(3.0).epsilon(1e-7));
    CHECK(answer.lse[0] == Approx(std::log(4.0)).epsilon(1e-7));
    CHECK(answer.max_value[0] == 4.0);
}

TEST_CASE("reference: the default softmax_scale is 1/sqrt(head_dim), a given one replaces it") {
    const Problem p = sdpa_problem(1, 4);
    const std::vector<float> query = {1, 1, 1, 1}, key = {1, 2, 3, 4}, value = {1, 2, 3, 4};
    polyhead_args args = sdpa_args(p, 1, query, key, value);
    CHECK(truth(p, args).lse[0] == Approx(5.0).epsilon(1e-12));
    args.has_softmax_scale = 1;
    args.softmax_scale = 0.25f;
    CHECK(truth(p, args).lse[0] == Approx(2.5).epsilon(1e-12));
    args.softmax_scale = 0.0f;
    CHECK(truth(p, args).lse[0] == 0.0);
}

TEST_CASE("reference: visible keys under causal masks of both alignments") {
    Problem p = sdpa_problem(1, 1);
    const auto seen = [&p](int64_t rows, int64_t keys, std::vector<int32_t> lengths, Alignment alignment) {
        const std::vector<float> query(static_cast<size_t>(rows), 1.0f), key(static_cast<size_t>(keys), 1.0f);
        polyhead_args args = sdpa_args(p, 1, query, key, key);
        args.alignment = static_cast<int32_t>(alignment);
        if (!lengths.empty()) {
            args.kv_lengths = dense(lengths);
        }
        std::vector<int64_t> visible;
        for (int64_t q = 0; q < rows; q++) {
            CHECK(key_range(p, args, 0, q).begin == 0);
            visible.push_back(key_range(p, args, 0, q).end);
        }
        return visible;
    };
    using V = std::vector<int64_t>;
    CHECK(seen(3, 5, {}, Alignment::of_problem) == V{5, 5, 5});
    CHECK(seen(3, 5, {2}, Alignment::of_problem) == V{2, 2, 2});
    p.causal = POLYHEAD_BOTTOM_RIGHT;
    CHECK(seen(3, 5, {}, Alignment::of_problem) == V{3, 4, 5});
    CHECK(seen(5, 3, {}, Alignment::of_problem) == V{0, 0, 1, 2, 3});
    CHECK(seen(3, 5, {4}, Alignment::of_problem) == V{2, 3, 4});
    CHECK(seen(3, 5, {1}, Alignment::of_problem) == V{0, 0, 1});
    CHECK(seen(3, 5, {0}, Alignment::of_problem) == V{0, 0, 0});
    CHECK(seen(3, 5, {}, Alignment::top_left) == V{1, 2, 3});
    p.causal = POLYHEAD_TOP_LEFT;
    CHECK(seen(3, 5, {}, Alignment::of_problem) == V{1, 2, 3});
    CHECK(seen(5, 3, {}, Alignment::of_problem) == V{1, 2, 3, 3, 3});
    CHECK(seen(5, 3, {2}, Alignment::of_problem) == V{1, 2, 2, 2, 2});
    CHECK(seen(3, 5, {}, Alignment::bottom_right) == V{3, 4, 5});
}

TEST_CASE("reference: a causal row is the softmax over what it sees") {
    Problem p = sdpa_problem(1, 1);
    p.causal = POLYHEAD_BOTTOM_RIGHT;
    const std::vector<float> query = {1, 1}, key = {0, log3, 100}, value = {0, 4, 7};
    const Answer<double> answer = truth(p, sdpa_args(p, 1, query, key, value));
    CHECK(answer.out[0] == Approx(3.0).epsilon(1e-7));
    CHECK(answer.out[1] == Approx(7.0).epsilon(1e-12));
    CHECK(answer.max_value[0] == 4.0);
    CHECK(answer.max_value[1] == 7.0);
}

TEST_CASE("reference: empty rows are 0 and -inf, and what nobody sees is not read") {
    Problem p = sdpa_problem(1, 2);
    p.kv_lengths = 1;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> query = {1, 2, 3, 4}, key = {nan, nan, 1, 1, nan, nan, nan, nan}, value = {nan, nan, 5, 6, nan, nan, nan, nan};
    polyhead_args args = sdpa_args(p, 2, query, key, value);
    std::vector<int32_t> lengths = {0, 0};
    args.kv_lengths = dense(lengths);
    Answer<double> answer = truth(p, args);
    CHECK(answer.out == std::vector<double>{0, 0, 0, 0});
    CHECK(answer.lse == std::vector<double>{-infinity, -infinity});
    args.key.shape[2] = args.value.shape[2] = 0;
    args.kv_lengths = {};
    answer = truth(p, args);
    CHECK(answer.out == std::vector<double>{0, 0, 0, 0});
    CHECK(answer.lse == std::vector<double>{-infinity, -infinity});
}

TEST_CASE("reference: query head h reads key/value head h / group_size") {
    const Problem p = sdpa_problem(4, 1, 2);
    const std::vector<float> query = {1, 1, 1, 1}, key = {1, 2}, value = {10, 20};
    CHECK(truth(p, sdpa_args(p, 1, query, key, value)).out == std::vector<double>{10, 10, 20, 20});
}

TEST_CASE("reference: linear is x W^T + b") {
    Problem p = linear_problem(2, 3);
    p.bias = 1;
    const std::vector<float> x = {1, 2, 3, 4}, weight = {1, 0, 0, 1, 1, 1}, bias = {10, 20, 30};
    polyhead_args args = polyhead_args_of(POLYHEAD_LINEAR);
    args.query = dense(x, {2, 2});
    polyhead_weight_tensors weights = polyhead_weight_tensors_of();
    weights.out_proj = dense(weight, {3, 2});
    weights.out_bias = dense(bias, {3});
    CHECK(truth(p, args, weights).out == std::vector<double>{11, 22, 33, 13, 24, 37});
}

TEST_CASE("reference: a layer of one head and one feature") {
    Problem p = mha_problem(1, 1);
    p.bias = 1;
    // query = 1 * x, key = x, value = 2 x + 1; out = 3 y - 1; logits of query 1 over keys 0 and ln 3
    const std::vector<float> x = {0, log3}, in = {1, 1, 2}, in_bias = {1, 0, 1}, out = {3}, out_bias = {-1};
    polyhead_args args = polyhead_args_of(POLYHEAD_MHA);
    args.query = dense(x, {1, 2, 1});
    polyhead_weight_tensors weights = polyhead_weight_tensors_of();
    weights.in_proj = dense(in, {3, 1});
    weights.in_bias = dense(in_bias, {3});
    weights.out_proj = dense(out, {1, 1});
    weights.out_bias = dense(out_bias, {1});
    const Answer<double> answer = truth(p, args, weights);
    const double value0 = 1, value1 = 2 * static_cast<double>(log3) + 1;
    CHECK(answer.out[0] == Approx(3 * (0.25 * value0 + 0.75 * value1) - 1).epsilon(1e-7));
    CHECK(answer.lse[0] == Approx(std::log(4.0)).epsilon(1e-7));
    CHECK(answer.max_value[0] == Approx(value1).epsilon(1e-12));
}

TEST_CASE("tolerance: the rule in numbers") {
    CHECK(f32_tolerance(0.0, 0.1, 0.0) == Approx(1e-5));
    CHECK(f32_tolerance(0.0, 100.0, 0.0) == Approx(1e-3));
    CHECK(f32_tolerance(-2.0, 1.0, 0.0) == Approx(2e-5));
    CHECK(f32_tolerance(0.0, 1.0, 1e-6) == Approx(1.4e-5));
    CHECK(within(1.00001f, 1.0, 1.1e-5));
    CHECK_FALSE(within(1.00002f, 1.0, 1.1e-5));
    CHECK_FALSE(within(std::numeric_limits<float>::quiet_NaN(), 1.0, 1e30));
}
