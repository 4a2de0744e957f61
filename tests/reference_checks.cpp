// The checks themselves: they accept the plain f32 formula, and each of many planted faults makes the right one fail.
#include <cmath>

#include "instruments/calls/problems.h"
#include "support/catch.h"
#include "support/check.h"
#include "support/plain_subject.h"
#include "support/shapes.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

Problem full_problem() {
    Problem p = sdpa_problem(4, 9, 2, 6);
    p.causal = POLYHEAD_BOTTOM_RIGHT;
    p.kv_lengths = p.lse = 1;
    return p;
}

} // namespace

TEST_CASE("checks: the plain f32 formula passes every check") {
    std::vector<Problem> problems = {full_problem(), sdpa_problem(2, 33), mha_problem(24, 3), linear_problem(31, 18)};
    Problem cross = mha_problem(20, 4, 2, 6, 5);
    cross.cross = cross.bias = cross.lse = cross.kv_lengths = 1;
    cross.kdim = 13;
    cross.vdim = 17;
    problems.push_back(cross);
    for (const Problem &p : problems) {
        const LayerWeights weights(p, 7);
        const Subject subject = plain_subject(p, weights);
        for (const Shape &shape : awkward_shapes(p, 8, 40)) {
            if (shape.seq_len_q * shape.seq_len_kv < 20000) {
                CHECK(check_answer(subject, shape) == "");
            }
        }
        CHECK(check_answer(subject,
                           crowded_shape().lengths.size() == 3 && p.kv_lengths != 0 ? crowded_shape() : plain_shape(p, 2, 5, 6, 9)) == "");
        CHECK(check_same_bits(subject, same_bits_shape(p, 10)) == "");
    }
}

TEST_CASE("checks: planted faults are caught") {
    const Problem p = full_problem();
    const LayerWeights weights(p, 7);
    const auto caught = [&](Fault before, Fault after, const char *part, const Shape &shape = crowded_shape()) {
        const std::string failure = check_answer(plain_subject(p, weights, before, after), shape);
        INFO(failure);
        CHECK(contains(failure, part));
        CHECK(contains(failure, "polyhead generate NAME --op sdpa"));
        CHECK(contains(failure, "seed"));
    };
    // a wrong scale, a wrong alignment, wrong lengths
    caught([](const Problem &, polyhead_args &a) { a.has_softmax_scale = 1, a.softmax_scale = 0.334f; }, nullptr, "elements wrong");
    caught([](const Problem &, polyhead_args &a) { a.alignment = POLYHEAD_TOP_LEFT; }, nullptr, "elements wrong");
    caught([](const Problem &, polyhead_args &a) { a.kv_lengths = {}; }, nullptr, "NaN");
    // an error of 2e-4 in one element, a NaN, an element never written, a write between two rows
    caught(nullptr, [](const Problem &, polyhead_args &a) { *element(a.out, 0, 3, 10, 5) += 2e-4f; }, "1 of");
    caught(nullptr, [](const Problem &, polyhead_args &a) { *element(a.lse, 0, 1, 10) += 1e-3f; }, "lse[");
    caught(nullptr, [](const Problem &, polyhead_args &a) { *element(a.out, 0, 0, 1, 0) = NAN; }, "out[6] is NaN");
    caught(
        nullptr,
        [](const Problem &, polyhead_args &a) {
            const uint32_t canary = GuardedBuffer::canary;
            std::copy_n(reinterpret_cast<const char *>(&canary), 4, reinterpret_cast<char *>(element(a.out, 1, 2, 3, 4)));
        },
        "was not written");
    caught(nullptr, [](const Problem &, polyhead_args &a) { *element(a.out, 0, 0, 0, 6) = 0; }, "outside");
    // empty rows: the mean, a tiny number, a finite lse
    caught(nullptr, [](const Problem &, polyhead_args &a) { *element(a.out, 2, 0, 0, 0) = 1e-30f; }, "exactly 0");
    caught(nullptr, [](const Problem &, polyhead_args &a) { *element(a.lse, 2, 0, 0) = -3e38f; }, "exactly -inf");
    // a refusal is a failure too
    Subject refusing = plain_subject(p, weights);
    refusing.run = [](const polyhead_args &) { return polyhead_status{POLYHEAD_INTERNAL, "no"}; };
    CHECK(contains(check_answer(refusing, crowded_shape()), "refused with code 11: no"));
}

TEST_CASE("checks: faults in a cache are caught") {
    for (const int32_t page_size : {0, 4}) {
        Problem p = mha_problem(24, 4, 2);
        p.cache = 1;
        p.page_size = page_size;
        p.causal = POLYHEAD_BOTTOM_RIGHT;
        p.rope = POLYHEAD_ROPE_HALF_SPLIT;
        const LayerWeights weights(p, 7);
        Shape shape = plain_shape(p, 3, 5, 24, 9);
        shape.batch = 3; // whatever POLYHEAD_TEST_BUDGET made of it
        shape.seq_len_q = 5;
        shape.seq_len_kv = 24;
        shape.lengths = {19, 3, 0}; // all new rows of the second batch row: 3 .. 7
        const auto caught = [&](Fault after, const char *part) {
            const std::string failure = check_answer(plain_subject(p, weights, nullptr, after), shape);
            INFO(failure);
            CHECK(contains(failure, part));
        };
        const auto row = [](const polyhead_args &a, const polyhead_tensor &cache, int64_t b, int64_t n) {
            const int64_t size = a.page_table.rank != 0 ? cache.shape[2] : 0;
            return size == 0 ? element(cache, b, 0, n)
                             : element(cache, static_cast<const int32_t *>(a.page_table.data)[b * a.page_table.stride[0] + n / size], 0,
                                       n % size);
        };
        CHECK(check_answer(plain_subject(p, weights), shape) == "");
        caught([&](const Problem &, polyhead_args &a) { row(a, a.key_cache, 1, 3)[2] += 2e-4f; }, "key_cache[");
        caught([&](const Problem &, polyhead_args &a) { row(a, a.value_cache, 0, 23)[0] = 0; }, "value_cache[");
        caught([&](const Problem &, polyhead_args &a) { row(a, a.key_cache, 1, 2)[0] = 0; }, "outside");
        caught([&](const Problem &, polyhead_args &a) { row(a, a.value_cache, 2, 5)[0] = 0; }, "outside");
        // keys that were not rotated, or rotated one position too far
        const auto rotated = [&](int64_t by) {
            return check_answer(plain_subject(p, weights, nullptr,
                                              [&](const Problem &, polyhead_args &a) {
                                                  polyhead_args other = a;
                                                  std::vector<int32_t> positions;
                                                  for (int64_t i = 0; i < 15; i++) {
                                                      positions.push_back(
                                                          static_cast<int32_t>(by * (shape.lengths[size_t(i / 5)] + i % 5 + 1)));
                                                  }
                                                  other.positions_kv = view(positions.data(), {3, 5});
                                                  write_new_rows(p, a, a.key_cache,
                                                                 evaluate<float>(p, other, weights.tensors(), all_rows(p, a)).new_rows[0]);
                                              }),
                                shape);
        };
        CHECK(contains(rotated(0), "key_cache["));
        CHECK(contains(rotated(1), "key_cache["));
        const auto bits = check_same_bits(plain_subject(p, weights, nullptr,
                                                        [&](const Problem &, polyhead_args &a) {
                                                            float *const x = row(a, a.key_cache, 0, 19);
                                                            *x = polyhead_num_threads() == 5 ? std::nextafter(*x, 2.0f) : *x;
                                                        }),
                                          shape);
        CHECK(contains(bits, "caches: 5 threads"));
    }
}

TEST_CASE("checks: other bits are caught") {
    const Problem p = full_problem();
    const LayerWeights weights(p, 7);
    Shape shape = same_bits_shape(p, 3);
    const auto last_bit = [](polyhead_args &a) {
        float &x = *element(a.out, 0, 0, a.out.shape[2] - 1, 0);
        x = std::nextafter(x, 2.0f);
    };
    shape.lengths[0] = 5; // so that the element is not an empty row
    shape.seq_len_q = 4;
    const auto failure = [&](Fault after) { return check_same_bits(plain_subject(p, weights, nullptr, after), shape); };
    CHECK(contains(failure([&](const Problem &, polyhead_args &a) { polyhead_num_threads() == 5 ? last_bit(a) : void(); }), "5 threads"));
    CHECK(contains(failure([&](const Problem &, polyhead_args &a) { a.query.shape[0] == 1 ? last_bit(a) : void(); }), "alone"));
    CHECK(contains(failure([&](const Problem &, polyhead_args &a) { a.key.shape[2] % 2 == shape.seq_len_kv % 2 ? void() : last_bit(a); }),
                   "padded by"));
}

TEST_CASE("checks: hostile inputs are what they say") {
    const Problem p = full_problem();
    Shape shape = crowded_shape();
    const Inputs inputs(p, shape);
    CHECK(std::isnan(*element(inputs.args().key, 2, 0, 0, 0)));
    CHECK(std::isfinite(*element(inputs.args().key, 1, 0, 4, 0)));
    CHECK(std::abs(*element(inputs.args().value, 1, 0, 7, 1)) > 1e29f);
    shape.values = Values::extreme_logits;
    shape.poison = false;
    const Inputs extreme(p, shape);
    const polyhead_args &a = extreme.args();
    float largest = 0;
    for (int64_t n = 0; n < 20; n++) {
        for (int64_t q = 0; q < 11; q++) {
            float score = 0;
            for (int64_t d = 0; d < 9; d++) {
                score += *element(a.query, 0, 0, q, d) * *element(a.key, 0, 0, n, d);
            }
            largest = std::max(largest, std::abs(score) / 3);
        }
    }
    CHECK(largest > 4.5e5f);
    CHECK(largest < 5.5e5f);
}

TEST_CASE("checks: random shapes obey the problem and repeat") {
    Problem p = mha_problem(64, 4);
    p.seq_len_q = 50;
    p.kv_lengths = 1;
    Random a(5), b(5);
    for (int i = 0; i < 50; i++) {
        const Shape s = random_shape(p, a);
        CHECK(describe(p, s) == describe(p, random_shape(p, b)));
        CHECK(s.seq_len_q == 50);
        CHECK(s.seq_len_kv == 50);
        for (int32_t length : s.lengths) {
            CHECK(length >= 0);
            CHECK(length <= 50);
        }
    }
}
