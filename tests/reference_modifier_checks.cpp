// The checks with masks, modifiers and outputs: the plain f32 formula passes over the whole matrix of features, planted faults are
// caught, and the inputs are what they say.
#include <cmath>
#include <limits>
#include <set>

#include "instruments/calls/dense.h"
#include "instruments/calls/problems.h"
#include "instruments/reference/expressions.h"
#include "support/catch.h"
#include "support/check.h"
#include "support/feature_matrix.h"
#include "support/plain_subject.h"
#include "support/shapes.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

Problem full_problem(int32_t scores) {
    Problem p = sdpa_problem(4, 8, 2, 6);
    p.causal = POLYHEAD_BOTTOM_RIGHT;
    p.kv_lengths = p.lse = p.window = p.position_offsets = p.score_bias = p.softcap = p.alibi = p.sinks = p.head_gate = p.weights_mean = 1;
    p.mask = POLYHEAD_BOOLEAN_MASK;
    p.rope = POLYHEAD_ROPE_INTERLEAVED;
    p.rotary_dim = 6;
    p.scores = scores;
    p.expression = expression_cases()[0].text;
    return p;
}

Shape full_shape() {
    Shape s = crowded_shape();
    s.extras.left_out = 0;
    s.extras.offset_reach = 1;
    s.extras.fill = MaskFill::columns;
    s.extras.window_left = 9;
    s.extras.window_right = -1;
    return s;
}

} // namespace

TEST_CASE("checks: the plain f32 formula passes for every problem of the feature matrix") {
    uint64_t seed = 0;
    for (const FeatureRow &row : feature_rows()) {
        const Problem p = feature_problem(row);
        const LayerWeights weights(p, 7);
        const Subject subject = plain_subject(p, weights);
        Random random(++seed);
        for (int i = 0; i < 4; i++) {
            Shape shape = random_shape(p, random);
            if (shape.seq_len_q * shape.seq_len_kv < 10000) {
                CHECK(check_answer(subject, shape) == "");
            }
        }
        if (seed % 8 == 0) {
            CHECK(check_same_bits(subject, same_bits_shape(p, seed)) == "");
        }
    }
}

TEST_CASE("checks: faults in masks, modifiers and outputs are caught") {
    const auto caught = [](int32_t scores, Fault before, Fault after, const char *part) {
        const Problem p = full_problem(scores);
        const LayerWeights weights(p, 7);
        REQUIRE(check_answer(plain_subject(p, weights), full_shape()) == "");
        const std::string failure = check_answer(plain_subject(p, weights, before, after), full_shape());
        INFO("expected " << part << ", found " << failure);
        CHECK(contains(failure, part));
        CHECK(contains(failure, "--window --position-offsets --mask bool --score-bias --softcap --alibi --sinks --rope interleaved "
                                "--rotary-dim 6 --head-gate --scores "));
        CHECK(contains(failure, "window 9 -1 offsets to 1 mask bhqk score_bias bhqk fill columns softcap 20"));
    };
    // An argument that is ignored or misread.
    const auto ignored = [&](polyhead_tensor polyhead_args::*tensor, const char *part = "elements wrong") {
        caught(POLYHEAD_LOGITS, [tensor](const Problem &, polyhead_args &a) { a.*tensor = {}; }, nullptr, part);
    };
    ignored(&polyhead_args::mask, "NaN");
    ignored(&polyhead_args::score_bias);
    ignored(&polyhead_args::alibi_slopes);
    ignored(&polyhead_args::sinks);
    ignored(&polyhead_args::head_gate);
    ignored(&polyhead_args::positions_q);
    ignored(&polyhead_args::positions_kv);
    ignored(&polyhead_args::position_offsets);
    caught(POLYHEAD_LOGITS, [](const Problem &, polyhead_args &a) { a.has_window = 0; }, nullptr, "elements wrong");
    caught(POLYHEAD_LOGITS, [](const Problem &, polyhead_args &a) { a.window_left--; }, nullptr, "elements wrong");
    caught(POLYHEAD_LOGITS, [](const Problem &, polyhead_args &a) { a.softcap *= 1.01f; }, nullptr, "elements wrong");
    caught(POLYHEAD_LOGITS, [](const Problem &, polyhead_args &a) { std::swap(a.rope_cos, a.rope_sin); }, nullptr, "elements wrong");
    caught(POLYHEAD_LOGITS, [](const Problem &, polyhead_args &a) { a.score_bias.shape[2] = 1; }, nullptr, "elements wrong");
    // A wrong element of scores or of the mean, of a key that takes part.
    const auto change = [](polyhead_tensor polyhead_args::*tensor, int64_t head, float difference) {
        return [=](const Problem &p, polyhead_args &a) {
            std::vector<uint8_t> seen;
            find_seen(p, a, 0, head, 10, seen);
            const int64_t n = std::find(seen.begin(), seen.end(), 1) - seen.begin();
            *((a.*tensor).rank == 4 ? element(a.*tensor, 0, head, 10, n) : element(a.*tensor, 0, 10, n)) += difference;
        };
    };
    for (int32_t stage : {POLYHEAD_SCALED_SCORES, POLYHEAD_CAPPED_SCORES, POLYHEAD_LOGITS}) {
        caught(stage, nullptr, change(&polyhead_args::scores, 1, 3e-4f), "scores[");
    }
    caught(POLYHEAD_WEIGHTS, nullptr, change(&polyhead_args::scores, 3, 2e-4f), "scores[");
    caught(POLYHEAD_WEIGHTS, nullptr, change(&polyhead_args::weights_mean, 0, 2e-4f), "weights_mean[");
    // An excluded key: a huge negative number for -inf, a tiny one for 0. Keys after the length of batch row 1 are excluded.
    caught(POLYHEAD_LOGITS, nullptr, [](const Problem &, polyhead_args &a) { *element(a.scores, 1, 0, 0, 19) = -3e38f; }, "exactly -inf");
    caught(POLYHEAD_WEIGHTS, nullptr, [](const Problem &, polyhead_args &a) { *element(a.scores, 1, 0, 0, 19) = 1e-30f; }, "exactly 0");
    caught(POLYHEAD_WEIGHTS, nullptr, [](const Problem &, polyhead_args &a) { *element(a.weights_mean, 1, 0, 19) = 1e-30f; }, "exactly 0");
    caught(POLYHEAD_WEIGHTS, nullptr, [](const Problem &, polyhead_args &a) { *element(a.weights_mean, 1, 0, 19) = NAN; }, "is NaN");
    // Elements that were not written, and memory between rows that was.
    const auto forget = [](polyhead_tensor polyhead_args::*tensor) {
        return [tensor](const Problem &, polyhead_args &a) {
            const uint32_t canary = GuardedBuffer::canary;
            std::copy_n(reinterpret_cast<const char *>(&canary), 4, reinterpret_cast<char *>(element(a.*tensor, 0, 0, 0, 0)));
        };
    };
    caught(POLYHEAD_SCALED_SCORES, nullptr, forget(&polyhead_args::scores), "scores[0] was not written");
    caught(POLYHEAD_LOGITS, nullptr, forget(&polyhead_args::weights_mean), "weights_mean[0] was not written");
    caught(POLYHEAD_LOGITS, nullptr, [](const Problem &, polyhead_args &a) { *element(a.scores, 0, 0, 0, 20) = 0; }, "outside");
    caught(POLYHEAD_LOGITS, nullptr, [](const Problem &, polyhead_args &a) { *element(a.weights_mean, 0, 0, 20) = 0; }, "outside");
}

TEST_CASE("checks: other bits of scores and means are caught, alone and padded") {
    const Problem p = full_problem(POLYHEAD_WEIGHTS);
    const LayerWeights weights(p, 7);
    Shape shape = same_bits_shape(p, 3);
    shape.seq_len_q = 4;
    const auto failure = [&](Fault after) { return check_same_bits(plain_subject(p, weights, nullptr, after), shape); };
    CHECK(failure(nullptr) == "");
    for (polyhead_tensor polyhead_args::*tensor : {&polyhead_args::scores, &polyhead_args::weights_mean}) {
        const auto nudge = [tensor](polyhead_args &a) { *element(a.*tensor, 0, 0, 0, 0) += 1e-20f; };
        CHECK(contains(failure([&](const Problem &, polyhead_args &a) { polyhead_num_threads() == 2 ? nudge(a) : void(); }), "2 threads"));
        CHECK(contains(failure([&](const Problem &, polyhead_args &a) { a.query.shape[0] == 1 ? nudge(a) : void(); }), "alone"));
        CHECK(contains(failure([&](const Problem &, polyhead_args &a) { a.key.shape[2] == shape.seq_len_kv ? void() : nudge(a); }),
                       "padded"));
    }
}

TEST_CASE("checks: masks hide poison, and what every mask form and fill looks like") {
    Problem p = sdpa_problem(4, 5, 2);
    p.mask = POLYHEAD_BOOLEAN_MASK;
    Shape shape = plain_shape(p, 2, 9, 33, 4);
    shape.poison = true;
    shape.extras.fill = MaskFill::columns;
    const Inputs inputs(p, shape);
    int hidden = 0, found = 0;
    for (int64_t n = 0; n < 33; n++) {
        const bool masked = MaskRow(inputs.args().mask, 1, 0, 0)[n] == 0;
        CHECK(inputs.poisoned(1, 0, n) == masked);
        hidden += masked;
        found += !std::isfinite(*element(inputs.args().value, 1, 0, n, 0)) || std::abs(*element(inputs.args().value, 1, 0, n, 0)) > 100;
    }
    CHECK(hidden > 5);
    CHECK(found == hidden);
    // Forms: stride 0 in full dimensions, gaps, fewer dimensions.
    shape.extras.mask = {4, {true, false, true, true}, {true, false, false, false}, true};
    const Inputs stretched(p, shape);
    const polyhead_tensor &mask = stretched.args().mask;
    CHECK(std::vector<int64_t>(mask.shape, mask.shape + 4) == std::vector<int64_t>{2, 1, 9, 33});
    CHECK(std::vector<int64_t>(mask.stride, mask.stride + 4) == std::vector<int64_t>{0, 9 * 36, 36, 1});
    p.mask_broadcast = POLYHEAD_BROADCAST_Q | POLYHEAD_BROADCAST_KV;
    shape.extras.mask = {3, {true, true, true, true}, {}, false};
    const Inputs per_head(p, shape);
    CHECK(std::vector<int64_t>(per_head.args().mask.shape, per_head.args().mask.shape + 3) == std::vector<int64_t>{4, 1, 1});
}

TEST_CASE("checks: random calls reach the corners that they are for") {
    Problem p = full_problem(POLYHEAD_LOGITS);
    p.mask = POLYHEAD_ADDITIVE_MASK;
    p.expression = nullptr;
    std::set<std::string> seen;
    Random random(3);
    const float lowest = -std::numeric_limits<float>::max();
    for (int i = 0; i < 150; i++) {
        Shape shape = random_shape(p, random);
        shape.seq_len_q = std::min<int64_t>(shape.seq_len_q, 40);
        shape.seq_len_kv = std::min<int64_t>(shape.seq_len_kv, 40);
        for (int32_t &length : shape.lengths) {
            length = std::min<int32_t>(length, static_cast<int32_t>(shape.seq_len_kv));
        }
        const Inputs inputs(p, shape);
        const polyhead_args &a = inputs.args();
        seen.insert("rank " + std::to_string(a.mask.rank));
        const Answer<double> answer = evaluate<double>(p, a, {}, all_rows(p, a));
        for (uint8_t empty : answer.empty) {
            seen.insert(empty != 0 ? "an empty row" : "a row");
        }
        for (int64_t b = 0; b < shape.batch && shape.seq_len_q > 0; b++) {
            seen.insert(position_of(p, a, b, 0) < 0 ? "a row before the first key" : "");
            seen.insert(position_of(p, a, b, shape.seq_len_q - 1) >= shape.seq_len_kv ? "a row behind the last key" : "");
        }
        if (a.mask.data != nullptr && shape.seq_len_kv > 1) {
            for_each_row(a.mask, [&](float *row, int64_t, int64_t, int64_t) {
                std::set<float> kinds(row, row + a.mask.shape[a.mask.rank - 1]);
                const bool low = kinds.count(-3.4e38f) + kinds.count(lowest) == kinds.size();
                seen.insert(low ? "a row of lowest numbers" : kinds == std::set<float>{-INFINITY} ? "a row of -inf" : "");
                seen.insert(kinds.count(-1e4f) != 0 && kinds.count(-INFINITY) != 0 && kinds.count(-3.4e38f) != 0 ? "all sentinels" : "");
            });
        }
    }
    for (const char *corner : {"rank 1", "rank 2", "rank 3", "rank 4", "an empty row", "a row", "a row before the first key",
                               "a row behind the last key", "a row of lowest numbers", "a row of -inf", "all sentinels"}) {
        INFO(corner);
        CHECK(seen.count(corner) == 1);
    }
}

TEST_CASE("checks: rounded logits widen the tolerance of rows at -1e4, not of rows at the lowest numbers or of extreme logits") {
    Problem p = sdpa_problem(1, 1);
    p.mask = POLYHEAD_ADDITIVE_MASK;
    const std::vector<float> query = {1}, key = {0.5f, 0.25f}, value = {1, 2};
    polyhead_args args = sdpa_args(p, 1, query, key, value);
    std::vector<float> mask = {-1e4f, -1e4f};
    args.mask = dense(mask, {2});
    const auto answer = [&] { return evaluate<double>(p, args, {}, all_rows(p, args)); };
    CHECK(answer().rounding[0] == Approx(0x1p-23 * 1e4).epsilon(0.01));
    CHECK(answer().spread[0] == Approx(0.5).epsilon(0.1)); // nearly equal weights
    mask = {0, 0};
    CHECK(answer().rounding[0] < 1e-7);
    mask = {-3.4e38f, -3.4e38f};
    CHECK(answer().rounding[0] == 0);
    mask = {4e5f, 0};
    CHECK(answer().rounding[0] == 0);
    mask = {-1e4f, -2e4f}; // one key has all the weight
    CHECK(answer().spread[0] == 0);
}

TEST_CASE("checks: a row at -1e4 excuses no error in the rows beside it") {
    for (int32_t stage : {POLYHEAD_LOGITS, POLYHEAD_WEIGHTS}) {
        Problem p = sdpa_problem(2, 8, 2, 6);
        p.mask = POLYHEAD_ADDITIVE_MASK;
        p.lse = p.weights_mean = 1;
        p.scores = stage;
        const LayerWeights weights(p, 7);
        Shape shape = plain_shape(p, 1, 40, 30, 5);
        shape.extras.fill = MaskFill::sentinels;
        shape.extras.mask = {4, {true, true, true, true}, {}, false};
        const Inputs inputs(p, shape);
        const Answer<double> truth = evaluate<double>(p, inputs.args(), {}, all_rows(p, inputs.args()));
        // A row of head 0 with logits of everyday size, whose other head is no worse, and a row at -1e4 in each head.
        int64_t row = -1;
        bool low[2] = {false, false};
        for (int64_t q = 0; q < 40; q++) {
            const double largest = std::max(truth.largest[q], truth.largest[40 + q]);
            row = largest < 8 && truth.empty[q] == 0 && truth.empty[40 + q] == 0 ? q : row;
            low[0] = low[0] || (truth.largest[q] > 9e3 && truth.largest[q] < 2e4 && truth.spread[q] > 0.5);
            low[1] = low[1] || (truth.largest[40 + q] > 9e3 && truth.largest[40 + q] < 2e4 && truth.spread[40 + q] > 0.5);
        }
        REQUIRE((row >= 0 && low[0] && low[1]));
        std::vector<uint8_t> seen;
        find_seen(p, inputs.args(), 0, 0, row, seen);
        int64_t n = 0;
        while (seen[n] == 0 || std::abs(*element(inputs.args().mask, 0, 0, row, n)) > 8) {
            n++;
        }
        const auto failure = [&](Fault after) { return check_answer(plain_subject(p, weights, nullptr, after), shape); };
        CHECK(failure(nullptr) == "");
        const auto caught = [&](const char *tensor, Fault after) {
            INFO(tensor);
            CHECK(contains(failure(after), tensor));
        };
        caught("out[", [row](const Problem &, polyhead_args &a) { *element(a.out, 0, 0, row, 3) += 4e-4f; });
        caught("lse[", [row](const Problem &, polyhead_args &a) { *element(a.lse, 0, 0, row) += 4e-4f; });
        caught("scores[", [row, n](const Problem &, polyhead_args &a) { *element(a.scores, 0, 0, row, n) += 4e-4f; });
        caught("weights_mean[", [row, n](const Problem &, polyhead_args &a) { *element(a.weights_mean, 0, row, n) += 4e-4f; });
    }
}
