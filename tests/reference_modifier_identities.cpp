// Masks and modifiers of the reference against identities: what changes nothing, and the same thing expressed in another way.
#include <cmath>
#include <functional>
#include <limits>

#include "instruments/calls/dense.h"
#include "instruments/calls/inputs.h"
#include "instruments/calls/problems.h"
#include "instruments/reference/expressions.h"
#include "support/catch.h"
#include "support/difference.h"
#include "support/shapes.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

constexpr double tight = 1e-12;
constexpr int64_t batch = 2, heads = 4, rows = 7, keys = 11;

// A call with every modifier of the problem; change() may leave some out or alter them.
struct Call {
    Problem p;
    Inputs inputs;
    LayerWeights weights;
    polyhead_args args;

    static Shape shape_of(const Problem &p) {
        Shape s;
        s.batch = batch;
        s.seq_len_q = is_mha(p) && p.cross == 0 ? keys : rows;
        s.seq_len_kv = keys;
        s.extras.left_out = 0;
        s.extras.slopes_per_batch_row = true;
        return s;
    }
    explicit Call(const Problem &problem, const Shape &shape) : p(problem), inputs(p, shape), weights(p, 3), args(inputs.args()) {}
    explicit Call(const Problem &problem) : Call(problem, shape_of(problem)) {}
    Answer<double> answer() const { return truth(p, args, weights.tensors()); }
};

Problem bare() {
    Problem p = sdpa_problem(heads, 6, 2, 5);
    p.lse = p.weights_mean = 1;
    p.scores = POLYHEAD_LOGITS;
    return p;
}

void check_same(const Answer<double> &a, const Answer<double> &b, double limit = tight) {
    CHECK(largest_difference(a.out, b.out) <= limit);
    CHECK(largest_difference(a.weights_mean, b.weights_mean) <= limit);
    CHECK(a.empty == b.empty);
    for (size_t i = 0; i < a.lse.size(); i++) {
        CHECK((a.lse[i] == b.lse[i] || std::abs(a.lse[i] - b.lse[i]) <= limit));
    }
    for (size_t i = 0; i < a.scores.size(); i++) {
        CHECK((a.scores[i] == b.scores[i] || std::abs(a.scores[i] - b.scores[i]) <= limit));
    }
}

// The call with this feature at a neutral setting equals the call without it.
void check_neutral(const std::function<void(Problem &)> &feature, const std::function<void(Call &)> &setting, double limit = tight) {
    for (const Problem &without : {bare(), [] {
                                       Problem p = mha_problem(24, heads, 2);
                                       p.lse = p.weights_mean = 1;
                                       p.scores = POLYHEAD_LOGITS;
                                       return p;
                                   }()}) {
        Problem with = without;
        feature(with);
        Call call(with);
        setting(call);
        check_same(call.answer(), Call(without).answer(), limit);
    }
}

} // namespace

TEST_CASE("reference: a modifier at its neutral setting changes nothing") {
    const std::vector<float> zeros(heads, 0.0f), ones(heads, 1.0f), none(heads, -std::numeric_limits<float>::infinity());
    const std::vector<uint8_t> all(keys, 1);
    const std::vector<float> nothing(keys, 0.0f);
    check_neutral([](Problem &p) { p.window = 1; }, [](Call &c) { c.args.has_window = 0; });
    check_neutral([](Problem &p) { p.window = 1; }, [](Call &c) { c.args.window_left = c.args.window_right = -1; });
    check_neutral([](Problem &p) { p.window = 1; }, [](Call &c) { c.args.window_left = c.args.window_right = 1000; });
    check_neutral([](Problem &p) { p.position_offsets = 1; }, [](Call &) {});
    check_neutral([](Problem &p) { p.mask = POLYHEAD_BOOLEAN_MASK; }, [&](Call &c) { c.args.mask = dense(all, {keys}); });
    check_neutral([](Problem &p) { p.mask = POLYHEAD_BOOLEAN_MASK; }, [](Call &c) { c.args.mask = {}; });
    check_neutral([](Problem &p) { p.mask = POLYHEAD_ADDITIVE_MASK; }, [&](Call &c) { c.args.mask = dense(nothing, {1, keys}); });
    check_neutral([](Problem &p) { p.mask = POLYHEAD_ADDITIVE_MASK; }, [](Call &c) { c.args.mask = {}; });
    check_neutral([](Problem &p) { p.score_bias = 1; }, [&](Call &c) { c.args.score_bias = dense(nothing, {1, 1, 1, keys}); });
    check_neutral([](Problem &p) { p.softcap = 1; }, [](Call &c) { c.args.softcap = 1e9f; });
    check_neutral([](Problem &p) { p.alibi = 1; }, [&](Call &c) { c.args.alibi_slopes = dense(zeros, {heads}); });
    check_neutral([](Problem &p) { p.alibi = 1; }, [](Call &c) { c.args.alibi_slopes = {}; });
    check_neutral([](Problem &p) { p.sinks = 1; }, [&](Call &c) { c.args.sinks = dense(none, {heads}); });
    check_neutral([](Problem &p) { p.sinks = 1; }, [](Call &c) { c.args.sinks = {}; });
    check_neutral([](Problem &p) { p.head_gate = 1; }, [&](Call &c) { c.args.head_gate = dense(ones, {heads}); });
    check_neutral([](Problem &p) { p.head_gate = 1; }, [](Call &c) { c.args.head_gate = {}; });
    // The same turn for everybody leaves all products as they were.
    const std::vector<float> cosines(300, 0.6f), sines(300, 0.8f);
    for (int32_t rope : {POLYHEAD_ROPE_INTERLEAVED, POLYHEAD_ROPE_HALF_SPLIT}) {
        check_neutral(
            [rope](Problem &p) {
                p.rope = rope;
                p.rotary_dim = 4;
            },
            [&](Call &c) {
                c.args.rope_cos = dense(cosines, {150, 2});
                c.args.rope_sin = dense(sines, {150, 2});
            },
            1e-6); // 0.6 and 0.8 are not quite a turn in f32
    }
}

TEST_CASE("reference: rotations depend on the difference of positions only") {
    Problem p = bare();
    p.rope = GENERATE(POLYHEAD_ROPE_INTERLEAVED, POLYHEAD_ROPE_HALF_SPLIT);
    Call call(p);
    std::vector<float> cosines, sines;
    for (int n = 0; n < 60; n++) {
        for (int i = 0; i < 3; i++) {
            cosines.push_back(static_cast<float>(std::cos(n * std::pow(0.3, i))));
            sines.push_back(static_cast<float>(std::sin(n * std::pow(0.3, i))));
        }
    }
    call.args.rope_cos = dense(cosines, {60, 3});
    call.args.rope_sin = dense(sines, {60, 3});
    std::vector<int32_t> positions_q, positions_kv;
    for (int32_t i = 0; i < batch * rows; i++) {
        positions_q.push_back(i * 5 % 29);
    }
    for (int32_t i = 0; i < batch * keys; i++) {
        positions_kv.push_back(i * 7 % 29);
    }
    call.args.positions_q = dense(positions_q, {batch, rows});
    call.args.positions_kv = dense(positions_kv, {batch, keys});
    const Answer<double> before = call.answer();
    for (std::vector<int32_t> *positions : {&positions_q, &positions_kv}) {
        for (int32_t &position : *positions) {
            position += 30;
        }
    }
    check_same(before, call.answer(), 1e-6); // the table is f32
    CHECK(largest_difference(before.out, Call(bare()).answer().out) > 1e-3);
}

TEST_CASE("reference: interleaved and half-split rotation are one formula on reordered components") {
    Problem p = bare();
    p.rope = POLYHEAD_ROPE_INTERLEAVED;
    Call interleaved(p);
    const Answer<double> expected = interleaved.answer();
    p.rope = POLYHEAD_ROPE_HALF_SPLIT;
    Call half(p);
    std::vector<float> query, key;
    for (auto [tensor, reordered] : {std::pair(&half.args.query, &query), std::pair(&half.args.key, &key)}) {
        for_each_row(*tensor, [&](float *row, int64_t, int64_t, int64_t) {
            for (int d : {0, 2, 4, 1, 3, 5}) {
                reordered->push_back(row[d]);
            }
        });
        *tensor = dense(*reordered, std::vector<int64_t>(tensor->shape, tensor->shape + 4));
    }
    check_same(half.answer(), expected);
}

TEST_CASE("reference: a bias that is the same for all keys moves lse and leaves out alone") {
    Problem p = bare();
    p.score_bias = 1;
    p.score_bias_broadcast = POLYHEAD_BROADCAST_KV;
    Call call(p);
    std::vector<float> bias;
    for (int i = 0; i < heads * rows; i++) {
        bias.push_back(0.25f * static_cast<float>(i) - 3);
    }
    call.args.score_bias = dense(bias, {heads, rows, 1});
    const Answer<double> with = call.answer(), without = Call(bare()).answer();
    CHECK(largest_difference(with.out, without.out) < tight);
    for (size_t i = 0; i < with.lse.size(); i++) {
        CHECK(std::abs(with.lse[i] - without.lse[i] - static_cast<double>(bias[i % bias.size()])) < tight);
    }
}

TEST_CASE("reference: one thing said in several ways") {
    // causal, a window without end to the left, a boolean mask, an additive mask
    Problem causal = bare(), window = causal, boolean = causal, additive = causal;
    causal.causal = POLYHEAD_TOP_LEFT;
    window.window = 1;
    boolean.mask = POLYHEAD_BOOLEAN_MASK;
    additive.mask = POLYHEAD_ADDITIVE_MASK;
    std::vector<uint8_t> mask;
    std::vector<float> added;
    for (int64_t q = 0; q < rows; q++) {
        for (int64_t n = 0; n < keys; n++) {
            mask.push_back(n <= q);
            added.push_back(n <= q ? 0.0f : -std::numeric_limits<float>::infinity());
        }
    }
    const Answer<double> expected = Call(causal).answer();
    Call by_window(window), by_boolean(boolean), by_additive(additive);
    by_window.args.alignment = POLYHEAD_TOP_LEFT;
    by_window.args.window_left = -1;
    by_window.args.window_right = 0;
    by_boolean.args.mask = dense(mask, {rows, keys});
    by_additive.args.mask = dense(added, {1, rows, keys});
    check_same(by_window.answer(), expected);
    check_same(by_boolean.answer(), expected);
    check_same(by_additive.answer(), expected);
    // a sentinel is as good as -inf beside ordinary keys, but for the logits
    for (float &x : added) {
        x = x < 0 ? -3.4e38f : 0.0f;
    }
    CHECK(largest_difference(by_additive.answer().out, expected.out) < tight);
    // lengths as a mask that broadcasts over heads and queries
    Problem lengths = bare();
    lengths.kv_lengths = 1;
    const std::vector<int32_t> valid = {4, 9};
    std::vector<uint8_t> padding;
    for (int64_t i = 0; i < batch * keys; i++) {
        padding.push_back(i % keys < valid[static_cast<size_t>(i / keys)]);
    }
    Call by_lengths(lengths);
    by_lengths.args.kv_lengths = dense(valid);
    by_boolean.args.mask = dense(padding, {batch, 1, 1, keys});
    check_same(by_boolean.answer(), by_lengths.answer());
}

TEST_CASE("reference: alibi is a bias, and so is an expression") {
    Problem alibi = bare(), bias = alibi, expression = alibi;
    alibi.alibi = 1;
    bias.score_bias = 1;
    expression.expression = expression_cases()[0].text; // a table of relative positions from -16 to 16
    const std::vector<float> slopes = {0.5f, 0.25f, 0.125f, 1.0f};
    std::vector<float> added, table;
    for (float slope : slopes) {
        for (int64_t q = 0; q < rows; q++) {
            for (int64_t n = 0; n < keys; n++) {
                added.push_back(-slope * static_cast<float>(std::abs(q + keys - rows - n)));
            }
        }
        for (int64_t i = 0; i < 33; i++) {
            table.push_back(-slope * static_cast<float>(std::abs(i - 16)));
        }
    }
    Call by_alibi(alibi), by_bias(bias), by_expression(expression);
    by_alibi.args.alibi_slopes = dense(slopes, {heads});
    by_bias.args.score_bias = dense(added, {heads, rows, keys});
    const polyhead_tensor tensors[] = {dense(table, {heads, 33})};
    by_expression.args.expression_tensors = tensors;
    check_same(by_alibi.answer(), by_bias.answer());
    check_same(by_alibi.answer(), by_expression.answer());
}

TEST_CASE("reference: a sink is one more key whose value is 0") {
    Problem p = sdpa_problem(1, 2), with_sink = p;
    with_sink.sinks = 1;
    Random random(9);
    const std::vector<float> query = {1, 0, 1, 0}; // so that the first component of a key is its logit
    std::vector<float> key = normal_vector(random, 10), value = normal_vector(random, 10);
    polyhead_args args = sdpa_args(with_sink, 1, query, key, value);
    args.has_softmax_scale = 1;
    args.softmax_scale = 1;
    const std::vector<float> sink = {0.75f};
    args.sinks = dense(sink, {1});
    const Answer<double> answer = truth(with_sink, args);
    key.insert(key.end(), {0.75f, 0.0f});
    value.insert(value.end(), {0.0f, 0.0f});
    polyhead_args longer = sdpa_args(p, 1, query, key, value);
    longer.has_softmax_scale = 1;
    longer.softmax_scale = 1;
    CHECK(largest_difference(answer.out, truth(p, longer).out) < tight);
    CHECK(largest_difference(answer.lse, truth(p, longer).lse) < tight);
}

TEST_CASE("reference: weights are the softmax of the logits, their mean is over heads, out is their product with value") {
    Problem p = bare();
    p.causal = POLYHEAD_BOTTOM_RIGHT;
    p.mask = POLYHEAD_BOOLEAN_MASK;
    p.softcap = p.alibi = p.score_bias = p.sinks = p.window = p.position_offsets = 1;
    p.rope = POLYHEAD_ROPE_HALF_SPLIT;
    Call call(p);
    const Answer<double> logits = call.answer();
    call.p.scores = POLYHEAD_WEIGHTS;
    const Answer<double> weights = call.answer();
    double largest = 0;
    for (int64_t row = 0; row < batch * heads * rows; row++) {
        const int64_t b = row / (heads * rows), h = row / rows % heads, q = row % rows;
        for (int64_t n = 0; n < keys; n++) {
            const double weight = weights.empty[row] != 0 ? 0.0 : std::exp(logits.scores[row * keys + n] - logits.lse[row]);
            largest = std::max(largest, std::abs(weights.scores[row * keys + n] - weight));
        }
        for (int64_t d = 0; d < p.head_dim_v; d++) {
            double sum = 0;
            for (int64_t n = 0; n < keys; n++) {
                sum += weights.scores[row * keys + n] * static_cast<double>(*element(call.args.value, b, h / 2, n, d));
            }
            largest = std::max(largest, std::abs(sum - weights.out[row * p.head_dim_v + d]));
        }
        for (int64_t n = 0; n < keys && h == 0; n++) {
            double mean = 0;
            for (int64_t head = 0; head < heads; head++) {
                mean += weights.scores[((b * heads + head) * rows + q) * keys + n] / heads;
            }
            largest = std::max(largest, std::abs(mean - weights.weights_mean[(b * rows + q) * keys + n]));
        }
    }
    CHECK(largest < tight);
}

TEST_CASE("reference: in a layer, too, rotation and gates act on projected heads") {
    // One head with identity projections is bare attention.
    Problem layer = mha_problem(6, 1), p = sdpa_problem(1, 6);
    for (Problem *one : {&layer, &p}) {
        one->rope = POLYHEAD_ROPE_INTERLEAVED;
        one->rotary_dim = 4;
        one->head_gate = one->softcap = one->weights_mean = 1;
        one->scores = POLYHEAD_CAPPED_SCORES;
    }
    Random random(5);
    const std::vector<float> x = normal_vector(random, 7 * 6), cosines = normal_vector(random, 20), sines = normal_vector(random, 20),
                             gate = {0.5f};
    std::vector<float> in(18 * 6, 0.0f), out(36, 0.0f);
    for (size_t i = 0; i < 18; i++) {
        in[i * 6 + i % 6] = 1.0f;
        out[i % 6 * 7] = 1.0f;
    }
    polyhead_args a = polyhead_args_of(POLYHEAD_MHA), b = sdpa_args(p, 1, x, x, x);
    a.query = dense(x, {1, 7, 6});
    for (polyhead_args *args : {&a, &b}) {
        args->rope_cos = dense(cosines, {10, 2});
        args->rope_sin = dense(sines, {10, 2});
        args->head_gate = dense(gate, {1});
        args->softcap = 2;
    }
    polyhead_weight_tensors weights = polyhead_weight_tensors_of();
    weights.in_proj = dense(in, {18, 6});
    weights.out_proj = dense(out, {6, 6});
    const Answer<double> by_layer = truth(layer, a, weights), by_sdpa = truth(p, b);
    CHECK(by_layer.out == by_sdpa.out);
    CHECK(by_layer.scores == by_sdpa.scores);
    CHECK(by_layer.weights_mean == by_sdpa.weights_mean);
}
