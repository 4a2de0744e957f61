// Masks and modifiers of the reference against cases small enough to compute by hand.
#include <cmath>
#include <limits>

#include "instruments/calls/dense.h"
#include "instruments/calls/problems.h"
#include "instruments/reference/expressions.h"
#include "instruments/reference/random_words.h"
#include "instruments/reference/visibility.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

constexpr float infinite = std::numeric_limits<float>::infinity();
const float log3 = std::log(3.0f);
using V = std::vector<double>;

// One head, one feature; query 1, so that the keys are the logits.
struct Row {
    Problem p = sdpa_problem(1, 1);
    std::vector<float> query, key, value;
    polyhead_args args;
    Row(std::vector<float> logits, std::vector<float> values, int64_t rows = 1)
        : query(static_cast<size_t>(rows), 1.0f), key(std::move(logits)), value(std::move(values)),
          args(sdpa_args(p, 1, query, key, value)) {}
    Answer<double> answer() const { return truth(p, args); }
};

void check_near(const std::vector<double> &got, const std::vector<double> &expected) {
    REQUIRE(got.size() == expected.size());
    for (size_t i = 0; i < got.size(); i++) {
        INFO("element " << i);
        if (std::isinf(expected[i])) {
            CHECK(got[i] == expected[i]);
        } else {
            CHECK(std::abs(got[i] - expected[i]) < 1e-6);
        }
    }
}

std::vector<std::vector<int64_t>> ranges(const Problem &p, const polyhead_args &args) {
    std::vector<std::vector<int64_t>> found;
    for (int64_t q = 0; q < num_rows(args); q++) {
        const KeyRange range = key_range(p, args, 0, q);
        found.push_back({range.begin, range.end});
    }
    return found;
}

} // namespace

TEST_CASE("reference: a window is inclusive on both sides and cut by causal") {
    Row row({0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0}, 4);
    using R = std::vector<std::vector<int64_t>>;
    row.p.window = 1;
    CHECK(ranges(row.p, row.args) == R{{0, 6}, {0, 6}, {0, 6}, {0, 6}}); // no window given
    row.args.has_window = 1;
    row.args.window_left = 1;
    row.args.window_right = 2; // positions 2, 3, 4, 5: bottom_right by default
    CHECK(ranges(row.p, row.args) == R{{1, 5}, {2, 6}, {3, 6}, {4, 6}});
    row.args.alignment = POLYHEAD_TOP_LEFT; // positions 0 to 3
    CHECK(ranges(row.p, row.args) == R{{0, 3}, {0, 4}, {1, 5}, {2, 6}});
    row.args.window_right = -1;
    CHECK(ranges(row.p, row.args) == R{{0, 6}, {0, 6}, {1, 6}, {2, 6}});
    row.p.causal = POLYHEAD_TOP_LEFT;
    CHECK(ranges(row.p, row.args) == R{{0, 1}, {0, 2}, {1, 3}, {2, 4}});
    row.args.window_left = row.args.window_right = 0;
    CHECK(ranges(row.p, row.args) == R{{0, 1}, {1, 2}, {2, 3}, {3, 4}});
    const std::vector<int32_t> lengths = {2};
    row.args.kv_lengths = dense(lengths);
    CHECK(ranges(row.p, row.args) == R{{0, 1}, {1, 2}, {2, 2}, {2, 2}});
}

TEST_CASE("reference: position offsets move causal and window, before the first key and behind the last") {
    Row row({0, 0, 0}, {0, 0, 0}, 3);
    using R = std::vector<std::vector<int64_t>>;
    row.p.causal = POLYHEAD_BOTTOM_RIGHT;
    row.p.position_offsets = 1;
    std::vector<int32_t> offsets = {-2};
    row.args.position_offsets = dense(offsets);
    CHECK(ranges(row.p, row.args) == R{{0, 0}, {0, 0}, {0, 1}});
    offsets[0] = 1;
    CHECK(ranges(row.p, row.args) == R{{0, 2}, {0, 3}, {0, 3}});
    row.p.window = row.args.has_window = 1;
    row.args.window_left = 1;
    row.args.window_right = -1;
    offsets[0] = 2;
    CHECK(ranges(row.p, row.args) == R{{1, 3}, {2, 3}, {3, 3}});
}

TEST_CASE("reference: boolean masks and -inf exclude exactly, whatever lies under them") {
    Row row({0, infinite, log3}, {0, std::numeric_limits<float>::quiet_NaN(), 4});
    row.p.scores = POLYHEAD_WEIGHTS;
    SECTION("boolean") {
        row.p.mask = POLYHEAD_BOOLEAN_MASK;
        const std::vector<uint8_t> mask = {1, 0, 1};
        row.args.mask = dense(mask, {3});
        check_near(row.answer().out, {3});
        check_near(row.answer().scores, {0.25, 0, 0.75});
    }
    SECTION("additive") {
        row.p.mask = POLYHEAD_ADDITIVE_MASK;
        const std::vector<float> mask = {log3, -infinite, 0};
        row.args.mask = dense(mask, {1, 1, 1, 3});
        check_near(row.answer().out, {2});
    }
    SECTION("score_bias") {
        row.p.score_bias = 1;
        const std::vector<float> bias = {0, -infinite, 0};
        row.args.score_bias = dense(bias, {1, 3});
        check_near(row.answer().out, {3});
        row.p.scores = POLYHEAD_LOGITS;
        check_near(row.answer().scores, {0, -INFINITY, static_cast<double>(log3)});
    }
}

TEST_CASE("reference: rows that see nothing are 0, 0 and -inf; finite sentinels take part") {
    Row row({0, 1, 2, 5}, {1, 2, 3, 6});
    row.p.mask = POLYHEAD_ADDITIVE_MASK;
    row.p.scores = POLYHEAD_WEIGHTS;
    row.p.lse = row.p.weights_mean = row.p.sinks = 1;
    std::vector<float> mask(4, -infinite), sinks = {0.5f};
    row.args.mask = dense(mask, {4});
    row.args.sinks = dense(sinks, {1}); // a sink does not fill an empty row
    Answer<double> answer = row.answer();
    CHECK(answer.out == V{0});
    CHECK(answer.scores == V{0, 0, 0, 0});
    CHECK(answer.weights_mean == V{0, 0, 0, 0});
    CHECK(answer.lse == V{-INFINITY});
    CHECK(answer.empty[0] == 1);
    row.args.sinks = {};
    for (float sentinel : {-3.4e38f, -std::numeric_limits<float>::max()}) {
        mask.assign(4, sentinel);
        answer = row.answer();
        CHECK(answer.out == V{3}); // the mean
        CHECK(answer.scores == V{0.25, 0.25, 0.25, 0.25});
        CHECK(answer.lse[0] < -1.6e38);
        CHECK(answer.empty[0] == 0);
        mask[3] = -infinite; // the mean of the others
        CHECK(row.answer().out == V{2});
        mask[3] = -1e4f; // next to which the sentinels are nothing
        CHECK(row.answer().out == V{6});
    }
    mask.assign(4, -1e4f); // moves every logit alike
    check_near(row.answer().out, Row({0, 1, 2, 5}, {1, 2, 3, 6}).answer().out);
}

TEST_CASE("reference: masks broadcast from the right, whatever their rank") {
    const Problem bare = sdpa_problem(2, 1);
    Random random(4);
    const std::vector<float> query = normal_vector(random, 2 * 2 * 3), key = normal_vector(random, 2 * 2 * 4),
                             value = normal_vector(random, 2 * 2 * 4);
    Problem p = bare;
    p.score_bias = 1;
    polyhead_args args = sdpa_args(p, 2, query, key, value);
    for (const std::vector<int64_t> &shape : std::vector<std::vector<int64_t>>{
             {4}, {1}, {3, 4}, {1, 4}, {3, 1}, {2, 3, 4}, {1, 3, 4}, {2, 1, 1}, {2, 2, 3, 4}, {2, 1, 1, 4}, {1, 2, 3, 1}, {1, 1, 1, 1}}) {
        int64_t count = 1;
        for (int64_t extent : shape) {
            count *= extent;
        }
        const std::vector<float> bias = normal_vector(random, count);
        args.score_bias = dense(bias, shape);
        // The same, written out.
        std::vector<float> full;
        const std::vector<int64_t> stride = dense_strides(shape), extents = {2, 2, 3, 4};
        for (int64_t i = 0; i < 48; i++) {
            const int64_t index[4] = {i / 24, i / 12 % 2, i / 4 % 3, i % 4};
            int64_t offset = 0;
            for (size_t dim = 0; dim < shape.size(); dim++) {
                offset += shape[dim] == 1 ? 0 : index[4 - shape.size() + dim] * stride[dim];
            }
            full.push_back(bias[static_cast<size_t>(offset)]);
        }
        polyhead_args written_out = args;
        written_out.score_bias = dense(full, extents);
        CHECK(truth(p, args).out == truth(p, written_out).out);
    }
}

TEST_CASE("reference: scale, softcap, expression, bias, exclusion, in that order") {
    Row row({8, -4, 2}, {0, 0, 0});
    row.p.softcap = row.p.score_bias = row.p.lse = 1;
    row.p.mask = POLYHEAD_BOOLEAN_MASK;
    row.p.expression = expression_cases()[2].text; // soft threshold
    row.args.has_softmax_scale = 1;
    row.args.softmax_scale = 0.5f;
    row.args.softcap = 3;
    const std::vector<float> threshold = {0.5f}, bias = {10, 20, 30};
    const std::vector<uint8_t> mask = {1, 1, 0};
    const polyhead_tensor tensors[] = {dense(threshold, {1})};
    row.args.expression_tensors = tensors;
    row.args.num_expression_tensors = 1;
    row.args.score_bias = dense(bias, {3});
    row.args.mask = dense(mask, {3});
    const auto stage = [&row](int32_t which) {
        row.p.scores = which;
        return row.answer().scores;
    };
    const double a = 3 * std::tanh(4.0 / 3), b = 3 * std::tanh(-2.0 / 3), c = 3 * std::tanh(1.0 / 3);
    check_near(stage(POLYHEAD_SCALED_SCORES), {4, -2, 1});
    check_near(stage(POLYHEAD_CAPPED_SCORES), {a, b, c});
    check_near(stage(POLYHEAD_LOGITS), {a - 0.5 + 10, b + 0.5 + 20, -INFINITY});
    const double e = std::exp(a - 0.5 - 10 - (b + 0.5));
    check_near(stage(POLYHEAD_WEIGHTS), {e / (1 + e), 1 / (1 + e), 0});
    check_near(row.answer().lse, {b + 20.5 + std::log1p(e)});
}

TEST_CASE("reference: alibi falls with the distance from the row's position") {
    Row row({0, 0, 0, 0}, {0, 0, 0, 0}, 2);
    row.p.alibi = 1;
    row.p.scores = POLYHEAD_LOGITS;
    const std::vector<float> slopes = {0.5f};
    row.args.alibi_slopes = dense(slopes, {1});
    check_near(row.answer().scores, {-1, -0.5, 0, -0.5, -1.5, -1, -0.5, 0}); // positions 2 and 3
    row.args.alignment = POLYHEAD_TOP_LEFT;
    check_near(row.answer().scores, {0, -0.5, -1, -1.5, -0.5, 0, -0.5, -1});
    row.args.alibi_slopes = dense(slopes, {1, 1});
    CHECK(row.answer().scores[3] == -1.5);
}

TEST_CASE("reference: a sink takes weight and gives nothing") {
    Row row({0, 0}, {4, 8});
    row.p.sinks = 1;
    row.p.scores = POLYHEAD_WEIGHTS;
    std::vector<float> sinks = {std::log(2.0f)};
    row.args.sinks = dense(sinks, {1});
    check_near(row.answer().out, {3});
    check_near(row.answer().scores, {0.25, 0.25});
    check_near(row.answer().lse, {std::log(4.0)});
    sinks[0] = 1e5f;
    CHECK(row.answer().out == V{0});
    CHECK(row.answer().empty[0] == 0);
    CHECK(row.answer().lse == V{1e5});
}

TEST_CASE("reference: rotary embedding by hand, interleaved and half split, part of the head") {
    Problem p = sdpa_problem(1, 6);
    p.rotary_dim = 4;
    p.scores = POLYHEAD_SCALED_SCORES;
    const std::vector<float> query = {1, 2, 3, 4, 5, 6};
    std::vector<float> key(6, 0.0f), value(6, 0.0f);
    // Row 1 of the table turns the first pair by 90 degrees and doubles the second.
    const std::vector<float> cosines = {1, 1, 0, 2}, sines = {0, 0, 1, 0};
    polyhead_args args = sdpa_args(p, 1, query, key, value);
    args.has_softmax_scale = 1;
    args.softmax_scale = 1;
    args.rope_cos = dense(cosines, {2, 2});
    args.rope_sin = dense(sines, {2, 2});
    const std::vector<int32_t> one = {1}, far = {9};
    args.positions_q = dense(one, {1, 1});
    const auto rotated = [&] { // the query after rotation, one component per key
        std::vector<double> components;
        for (size_t d = 0; d < 6; d++) {
            key.assign(6, 0.0f);
            key[d] = 1;
            components.push_back(truth(p, args).scores[0]);
        }
        return components;
    };
    p.rope = POLYHEAD_ROPE_INTERLEAVED;
    CHECK(rotated() == V{-2, 1, 6, 8, 5, 6});
    p.rope = POLYHEAD_ROPE_HALF_SPLIT;
    CHECK(rotated() == V{-3, 4, 1, 8, 5, 6});
    args.positions_q = dense(far, {1, 1}); // clamped to the last row of the table
    CHECK(rotated() == V{-3, 4, 1, 8, 5, 6});
    args.positions_q = {};
    CHECK(rotated() == V{1, 2, 3, 4, 5, 6}); // position 0
}

TEST_CASE("reference: pairs take their positions from directions") {
    Problem p = sdpa_problem(1, 8);
    p.scores = POLYHEAD_SCALED_SCORES;
    p.section_1 = 2;
    p.section_2 = p.section_3 = 1;
    const std::vector<float> query = {1, 2, 3, 4, 5, 6, 7, 8};
    std::vector<float> key(8, 0.0f), value(8, 0.0f);
    // Row 0 of the table does nothing, row 1 turns by 90 degrees, row 2 doubles.
    const std::vector<float> cosines = {1, 1, 1, 1, 0, 0, 0, 0, 2, 2, 2, 2}, sines = {0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0};
    polyhead_args args = sdpa_args(p, 1, query, key, value);
    args.has_softmax_scale = 1;
    args.softmax_scale = 1;
    args.rope_cos = dense(cosines, {3, 4});
    args.rope_sin = dense(sines, {3, 4});
    const std::vector<int32_t> at = {0, 1, 2}, first_turns = {1, 0, 2};
    const auto rotated = [&](int32_t rope, int32_t sections, const std::vector<int32_t> &positions) {
        p.rope = rope;
        p.rope_sections = sections;
        args.positions_q = dense(positions, {1, 3, 1});
        std::vector<double> components;
        for (size_t d = 0; d < 8; d++) {
            key.assign(8, 0.0f);
            key[d] = 1;
            components.push_back(truth(p, args).scores[0]);
        }
        return components;
    };
    CHECK(rotated(POLYHEAD_ROPE_HALF_SPLIT, POLYHEAD_SECTIONS_CONTIGUOUS, at) == V{1, 2, -7, 8, 5, 6, 3, 16});
    CHECK(rotated(POLYHEAD_ROPE_INTERLEAVED, POLYHEAD_SECTIONS_CONTIGUOUS, at) == V{1, 2, 3, 4, -6, 5, 14, 16});
    CHECK(rotated(POLYHEAD_ROPE_HALF_SPLIT, POLYHEAD_SECTIONS_INTERLEAVED, at) == V{1, -6, 6, 4, 5, 2, 14, 8});
    CHECK(rotated(POLYHEAD_ROPE_HALF_SPLIT, POLYHEAD_SECTIONS_PARTS, at) == V{1, 2, 3, 4, -6, 5, 14, 16});
    CHECK(rotated(POLYHEAD_ROPE_HALF_SPLIT, POLYHEAD_SECTIONS_PARTS, first_turns) == V{-3, -4, 1, 2, 5, 6, 14, 16});
    CHECK(rotated(POLYHEAD_ROPE_INTERLEAVED, POLYHEAD_SECTIONS_PARTS, first_turns) == V{-2, 1, -4, 3, 5, 6, 14, 16});
}

TEST_CASE("reference: gates scale heads, not weights") {
    Problem p = sdpa_problem(2, 1);
    p.head_gate = p.lse = p.weights_mean = 1;
    p.scores = POLYHEAD_WEIGHTS;
    const std::vector<float> query = {1, 1}, key = {0, log3, 0, 0}, value = {0, 4, 1, 3}, gates = {-2, 0};
    polyhead_args args = sdpa_args(p, 1, query, key, value);
    args.head_gate = dense(gates, {2});
    const Answer<double> answer = truth(p, args);
    check_near(answer.out, {-6, 0});
    check_near(answer.scores, {0.25, 0.75, 0.5, 0.5});
    check_near(answer.weights_mean, {0.375, 0.625});
    check_near(answer.lse, {std::log(4.0), std::log(2.0)});
    CHECK(answer.max_value == V{8, 0});
}

TEST_CASE("reference: the meaning of every expression of the tests") {
    // Row at position 2 of 4 keys, head 1 of 2, score 3.
    const std::vector<float> table(66, 0.25f), threshold = {-1}, levels = {0, 0.5f, 1};
    const std::vector<int32_t> documents_q = {7, 8}, documents_kv = {7, 8, 8, 7}, prefix = {1}, reach = {1};
    const std::vector<uint8_t> open = {1, 0};
    const auto point = [](const polyhead_tensor *tensors, int64_t kv) {
        return ExpressionPoint<double>{3.0, 0, 1, 1, kv, 2, 2, 4, 4, tensors};
    };
    const std::vector<ExpressionCase> &cases = expression_cases();
    REQUIRE(cases.size() == 8);
    const polyhead_tensor bias[] = {dense(table, {2, 33})};
    CHECK(cases[0].score(point(bias, 0)) == 3.25);
    const polyhead_tensor documents[] = {dense(documents_q, {1, 2}), dense(documents_kv, {1, 4})};
    CHECK_FALSE(cases[1].mask(point(documents, 0)));
    CHECK(cases[1].mask(point(documents, 1)));
    const polyhead_tensor thresholds[] = {dense(threshold, {1})};
    CHECK(cases[2].score(point(thresholds, 0)) == 2);
    const polyhead_tensor prefixes[] = {dense(prefix)};
    CHECK(cases[3].mask(point(prefixes, 2)));
    CHECK_FALSE(cases[3].mask(point(prefixes, 3)));
    const polyhead_tensor band[] = {dense(reach), dense(open, {2})};
    CHECK(cases[4].score(point(band, 0)) == Approx(3 - std::log(1.5)));
    CHECK(cases[4].mask(point(band, 2)));
    CHECK_FALSE(cases[4].mask(point(band, 3))); // odd, and the head is not open
    const polyhead_tensor functions[] = {dense(levels, {3})};
    CHECK(cases[5].score(point(functions, 2)) == Approx(8 * std::tanh(0.375) + 0.5 + 0.1 * std::sqrt(10.0)));
    CHECK_FALSE(cases[5].mask(point(functions, 3)));
    CHECK(cases[5].mask(point(functions, 2)));
    // Known answers of the authors (Random123, kat_vectors), and what follows from words of them.
    CHECK(philox({0, 0, 0, 0}, 0, 0, 7)[0] == 0x5f6fb709);
    CHECK(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffff, 0xffffffff, 7)[3] == 0x8c52f662);
    const std::vector<int32_t> seed = {5};
    const polyhead_tensor seeds[] = {dense(seed)};
    CHECK(cases[7].mask(point(seeds, 2)) == (uniform(5, 0, 1, 1, 2) < 0.9f));
    CHECK(cases[6].score(point(seeds, 2)) == Approx(3 + uniform(5, 3, 1, 1, 2) - 0.5 * uniform(7, -2, 2, 2, 1)));
}
