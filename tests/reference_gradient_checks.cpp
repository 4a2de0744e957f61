// The checks of gradients: they accept the plain formula, in f32 and in 16 bits, and each of many planted faults makes them fail.
#include <algorithm>
#include <cmath>

#include "instruments/calls/problems.h"
#include "instruments/reference/visibility.h"
#include "support/catch.h"
#include "support/check.h"
#include "support/gradient_subject.h"
#include "support/shapes.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

Problem masked_problem() {
    Problem p = backward_problem(4, 9, 2, 6);
    p.causal = POLYHEAD_BOTTOM_RIGHT;
    p.kv_lengths = p.softcap = 1;
    return p;
}

std::vector<Problem> problems() {
    Problem biased = backward_problem(3, 16, 1, 8);
    biased.mask = POLYHEAD_ADDITIVE_MASK;
    biased.score_bias = biased.sinks = biased.alibi = 1;
    biased.score_bias_broadcast = POLYHEAD_BROADCAST_Q;
    Problem window = backward_problem(2, 5, 2, 33);
    window.window = window.position_offsets = 1;
    window.mask = POLYHEAD_BOOLEAN_MASK;
    Problem summed = biased;
    summed.mask = POLYHEAD_BOOLEAN_MASK;
    summed.score_bias_broadcast = 0;
    summed.gate = POLYHEAD_GATE_OF_ENTRIES;
    summed.query_norm = POLYHEAD_RMS_NORM_PLUS_ONE;
    summed.key_norm = POLYHEAD_LAYER_NORM;
    summed.grad_score_bias = summed.grad_alibi = summed.grad_sinks = summed.grad_gate = summed.grad_query_norm = summed.grad_key_norm = 1;
    return {masked_problem(), backward_problem(2, 33), backward_problem(1, 1), biased, window, summed};
}

std::string check_of(const GradientFault &fault, const Problem &p = masked_problem(), Shape shape = crowded_shape()) {
    shape.extras.softcap = 1.0f;
    return check_answer(gradient_subject(p, POLYHEAD_F32, fault), shape);
}

using Args = const polyhead_args &;
using Floats = Gradients<float> &;

bool contains(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("gradient checks: the plain f32 formula passes every check") {
    for (const Problem &p : problems()) {
        const Subject subject = gradient_subject(p, POLYHEAD_F32);
        for (const Shape &shape : awkward_shapes(p, 8, 60)) {
            if (shape.seq_len_q * shape.seq_len_kv < 20000) {
                CHECK(check_answer(subject, shape) == "");
            }
        }
        CHECK(check_same_bits(subject, same_bits_shape(p, 10)) == "");
    }
    CHECK(check_of({}) == "");
}

TEST_CASE("gradient checks: in 16 bits the plain formula passes, and f32 arithmetic that is rounded once") {
    for (Problem p : problems()) {
        for (const int32_t dtype : {POLYHEAD_BF16, POLYHEAD_F16}) {
            p.dtype = dtype;
            p.additive_in_storage = dtype == POLYHEAD_F16;
            for (const Shape &shape : awkward_shapes(p, 9, 40)) {
                if (shape.seq_len_q * shape.seq_len_kv < 20000) {
                    // Scores beyond 65504 overflow where they are rounded, which must not excuse a kernel.
                    const bool overflows = dtype == POLYHEAD_F16 && shape.values == Values::extreme_logits;
                    CHECK((overflows || check_answer(gradient_subject(p, dtype), shape) == ""));
                    CHECK(check_answer(gradient_subject(p, POLYHEAD_F32), shape) == "");
                }
            }
        }
    }
}

TEST_CASE("gradient checks: wrong formulas are caught") {
    const auto caught = [](const GradientFault &fault, const char *part, const Problem &p = masked_problem()) {
        const std::string failure = check_of(fault, p);
        INFO(failure);
        CHECK(contains(failure, part));
        CHECK(contains(failure, "polyhead generate NAME --op sdpa_backward"));
    };
    // Signs and scales.
    caught({nullptr,
            [](Args, Floats g) { std::transform(g.query.values.begin(), g.query.values.end(), g.query.values.begin(), std::negate<>()); }},
           "grad_query[");
    caught({nullptr,
            [](Args, Floats g) {
                for (float &x : g.key.values) {
                    x *= 1.001f;
                }
            }},
           "grad_key[");
    caught({nullptr,
            [](Args, Floats g) {
                for (float &x : g.value.values) {
                    x *= 0.999f;
                }
            }},
           "grad_value[");
    // What the forward call was given.
    caught({[](Problem &p, polyhead_args &) { p.causal = POLYHEAD_TOP_LEFT; }, nullptr}, "elements wrong");
    caught({[](Problem &, polyhead_args &a) { a.kv_lengths = {}; }, nullptr}, "NaN");
    caught({[](Problem &, polyhead_args &a) { a.softcap = 1.01f; }, nullptr}, "elements wrong");
    // The sum over the weights left out.
    caught({[](Problem &, polyhead_args &a) {
                static const std::vector<float> zeros(4 * 3 * 11 * 6, 0.0f);
                a.out = dense(zeros, {3, 4, 11, 6});
            },
            nullptr},
           "elements wrong");
}

TEST_CASE("gradient checks: a missing derivative of softcap is caught") {
    // The same weights without softcap: a bias makes the logits what they are with it.
    std::vector<float> bias;
    const auto without = [&](Problem &p, polyhead_args &a) {
        const int64_t batch = a.query.shape[0], rows = a.query.shape[2], keys = a.key.shape[2], group = p.num_heads / p.num_kv_heads;
        bias.clear();
        for (int64_t i = 0; i < batch * p.num_heads * rows; i++) {
            const int64_t b = i / rows / p.num_heads, h = i / rows % p.num_heads, q = i % rows;
            for (int64_t n = 0; n < keys; n++) {
                float score = 0;
                for (int64_t d = 0; d < p.head_dim; d++) {
                    score += *element(a.query, b, h, q, d) * *element(a.key, b, h / group, n, d) / 3.0f;
                }
                const bool seen = n < key_length(p, a, b);
                bias.push_back(seen ? a.softcap * std::tanh(score / a.softcap) - score : 0.0f);
            }
        }
        p.softcap = 0;
        p.score_bias = 1;
        a.score_bias = dense(bias, {batch, p.num_heads, rows, keys});
    };
    Shape shape = crowded_shape();
    shape.poison = false;
    const std::string failure = check_of({without, nullptr}, masked_problem(), shape);
    INFO(failure);
    CHECK(contains(failure, "elements wrong"));
}

TEST_CASE("gradient checks: a group that misses a head is caught") {
    std::vector<float> zeros;
    for (const int64_t missing : {0, 3}) {
        const auto without = [&](const polyhead_args &a, Gradients<float> &g) {
            polyhead_args args = a;
            std::vector<float> grad_out = read_view(a.grad_out);
            for (int64_t b = 0; b < 3; b++) {
                std::fill_n(grad_out.begin() + (b * 4 + missing) * 11 * 6, 11 * 6, 0.0f);
            }
            args.grad_out = dense(grad_out, {3, 4, 11, 6});
            const Problem p = masked_problem();
            const Gradients<float> other = evaluate_gradients<float>(p, args, all_heads(p, args));
            g.key = other.key;
        };
        CHECK(contains(check_of({nullptr, without}), "grad_key["));
    }
}

TEST_CASE("gradient checks: wrong gradients of modifiers are caught") {
    Problem p = masked_problem();
    p.score_bias = p.alibi = p.sinks = p.gate = 1;
    p.query_norm = p.key_norm = POLYHEAD_LAYER_NORM;
    p.grad_score_bias = p.grad_alibi = p.grad_sinks = p.grad_gate = p.grad_query_norm = p.grad_key_norm = 1;
    Shape shape = crowded_shape();
    shape.extras.score_bias.full = {false, true, true, true};
    shape.extras.fill = MaskFill::all;
    CHECK(check_of({}, p, shape) == "");
    const auto caught = [&](Gradient<float> ModifierGradients<float>::*which, size_t i, const char *part) {
        const std::string failure = check_of({nullptr,
                                              [&](Args, Floats g) {
                                                  float &x = (g.modifiers.*which).values[i];
                                                  x += x == 0 ? 1e-30f : 5e-4f * std::max(1.0f, std::abs(x));
                                              }},
                                             p, shape);
        INFO(failure);
        CHECK(contains(failure, part));
    };
    caught(&ModifierGradients<float>::score_bias, 20 * 10 + 3, "grad_score_bias[203]");
    caught(&ModifierGradients<float>::score_bias, 19, "exactly 0"); // the last key, which the first query does not see
    caught(&ModifierGradients<float>::slopes, 2, "grad_alibi_slopes[2]");
    caught(&ModifierGradients<float>::sinks, 0, "grad_sinks[0]");
    caught(&ModifierGradients<float>::gate, 10, "grad_gate[10]");
    caught(&ModifierGradients<float>::query_norm_weight, 8, "grad_query_norm_weight[8]");
    caught(&ModifierGradients<float>::query_norm_bias, 0, "grad_query_norm_bias[0]");
    caught(&ModifierGradients<float>::key_norm_weight, 3, "grad_key_norm_weight[3]");
    caught(&ModifierGradients<float>::key_norm_bias, 7, "grad_key_norm_bias[7]");
}

TEST_CASE("gradient checks: single elements are caught") {
    const auto caught = [](const std::function<void(Args, Floats)> &after, const char *part) {
        const std::string failure = check_of({nullptr, after});
        INFO(failure);
        CHECK(contains(failure, part));
    };
    caught([](Args, Floats g) { g.query.values[9 * 10] += 2e-4f; }, "1 of");
    caught([](Args, Floats g) { g.key.values[9 * 19] += 5e-4f; }, "grad_key[171]");
    caught([](Args, Floats g) { g.value.values[6 * 3 + 1] = NAN; }, "grad_value[19] is NaN");
    // of an empty row, of a key that nobody sees, of a key behind the length: exactly 0
    caught([](Args, Floats g) { g.query.values[9 * 11 * 8] = 1e-30f; }, "exactly 0");
    caught([](Args, Floats g) { g.key.values[9 * 20 * 4] = 1e-30f; }, "exactly 0");
    caught([](Args, Floats g) { g.value.values[6 * (20 * 2 + 5)] = -1e-30f; }, "exactly 0");
    // not written, added to, written beside
    caught([](Args a, Floats) { *element(a.grad_query, 0, 0, 0, 9) = 0; }, "outside");
    caught([](Args, Floats g) { g.key.values[5] = bits_float(GuardedBuffer::canary); }, "grad_key[5] was not written");
}

TEST_CASE("gradient checks: NaN that leaks through an exclusion is caught") {
    // 0 times an entry that is not finite, of a pair that causal excludes.
    const auto leak = [](polyhead_tensor polyhead_args::*from, bool to_key) {
        return [from, to_key](Args a, Floats g) {
            const float zero = 0.0f * *element(a.*from, 0, 0, to_key ? 0 : 19, 0);
            (to_key ? g.key : g.query).values[to_key ? 9 * 19 : 0] += zero;
        };
    };
    Shape shape = crowded_shape();
    shape.lengths = {20, 20, 20};
    shape.seed = 4; // the poison is in all tensors
    shape.poison_query = 0;
    for (const auto which : {&polyhead_args::query, &polyhead_args::out, &polyhead_args::grad_out}) {
        CHECK(contains(check_of({nullptr, leak(which, true)}, masked_problem(), shape), "grad_key[171] is nan"));
    }
    CHECK(check_of({}, masked_problem(), shape) == "");
    shape.poison_query = -1;
    shape.poison_key = 19;
    for (const auto which : {&polyhead_args::key, &polyhead_args::value}) {
        CHECK(contains(check_of({nullptr, leak(which, false)}, masked_problem(), shape), "grad_query[0] is nan"));
    }
    CHECK(check_of({}, masked_problem(), shape) == "");
}

TEST_CASE("gradient checks: coarse arithmetic of 16 bits is caught") {
    for (const int32_t dtype : {POLYHEAD_BF16, POLYHEAD_F16}) {
        Problem p = masked_problem();
        p.dtype = dtype;
        // An eighth of the precision: results rounded to three bits less.
        const auto coarse = [](Gradient<float> Gradients<float>::*which) {
            return [which](Args, Floats g) {
                for (float &x : (g.*which).values) {
                    const float part = x * 0x1p-4f;
                    x = (x + part) - part;
                    x = std::ldexp(std::round(std::ldexp(x, 4 - std::ilogb(x == 0 ? 1.0f : x))), std::ilogb(x == 0 ? 1.0f : x) - 4);
                }
            };
        };
        for (const auto which : {&Gradients<float>::query, &Gradients<float>::key, &Gradients<float>::value}) {
            CHECK(contains(check_answer(gradient_subject(p, POLYHEAD_F32, {nullptr, coarse(which)}), crowded_shape()), "elements wrong"));
        }
    }
}

TEST_CASE("gradient checks: other bits are caught") {
    const Problem p = masked_problem();
    Shape shape = same_bits_shape(p, 3);
    shape.lengths[0] = 5;
    shape.seq_len_q = 4;
    const auto failure = [&](const std::function<bool(Args)> &changes, Gradient<float> Gradients<float>::*which) {
        return check_same_bits(gradient_subject(p, POLYHEAD_F32,
                                                {nullptr,
                                                 [&](Args a, Floats g) {
                                                     float &x = (g.*which).values[0];
                                                     x = changes(a) ? std::nextafter(x, 2.0f) : x;
                                                 }}),
                               shape);
    };
    const int64_t keys = shape.seq_len_kv;
    CHECK(contains(failure([](Args) { return polyhead_num_threads() == 5; }, &Gradients<float>::query), "grad_query: 5 threads"));
    CHECK(contains(failure([](Args a) { return a.query.shape[0] == 1; }, &Gradients<float>::key), "grad_key: batch row"));
    CHECK(contains(failure([=](Args a) { return a.key.shape[2] != keys && a.query.shape[0] > 1; }, &Gradients<float>::value),
                   "grad_value: keys padded by"));
}

namespace {

// Packed sequences one after another, by a subject that takes one. before may falsify the views of a sequence.
Subject of_sequences(const Subject &one, const std::function<void(polyhead_args &, int64_t sequence)> &before = nullptr) {
    Subject subject = one;
    subject.run = [one, before](const polyhead_args &given) {
        if (given.cu_seqlens_q.data == nullptr) {
            return one.run(given);
        }
        const auto take = [](polyhead_tensor &t, int dim, int64_t first, int64_t count) {
            t.data = static_cast<char *>(t.data) + first * t.stride[dim] * dtype_bytes(t.dtype);
            t.shape[dim] = count;
        };
        for (int64_t b = 0; b + 1 < given.cu_seqlens_q.shape[0]; b++) {
            polyhead_args args = given;
            args.cu_seqlens_q = args.cu_seqlens_kv = {};
            const auto *const q = static_cast<const int32_t *>(given.cu_seqlens_q.data), *const kv = static_cast<const int32_t *>(
                                                                                             given.cu_seqlens_kv.data);
            for (const auto which :
                 {&polyhead_args::query, &polyhead_args::out, &polyhead_args::lse, &polyhead_args::grad_out, &polyhead_args::grad_query}) {
                take(args.*which, 2, q[b], q[b + 1] - q[b]);
            }
            for (const auto which : {&polyhead_args::key, &polyhead_args::value, &polyhead_args::grad_key, &polyhead_args::grad_value}) {
                take(args.*which, kv != nullptr ? 2 : 0, kv != nullptr ? kv[b] : b, kv != nullptr ? kv[b + 1] - kv[b] : 1);
            }
            if (args.kv_lengths.data != nullptr) {
                take(args.kv_lengths, 0, b, 1);
            }
            if (before) {
                before(args, b);
            }
            one.run(args);
        }
        return polyhead_status{};
    };
    return subject;
}

} // namespace

TEST_CASE("gradient checks: packed sequences pass, and what one takes from another or leaves out is caught") {
    const Subject one = gradient_subject(masked_problem(), POLYHEAD_F32);
    int caught_lse = 0, caught_rows = 0, caught_writes = 0;
    for (uint64_t seed = 0; seed < 10; seed++) {
        CHECK(check_ragged(of_sequences(one), seed) == "");
        const auto failure = [&](const std::function<void(polyhead_args &, int64_t)> &fault) {
            return check_ragged(of_sequences(one, fault), seed);
        };
        caught_lse += contains(failure([](polyhead_args &a, int64_t b) {
                                   a.lse.data = static_cast<float *>(a.lse.data) - (b > 0 && a.lse.shape[2] > 0 ? 1 : 0);
                               }),
                               "other bits");
        caught_rows += contains(failure([](polyhead_args &a, int64_t) {
                                    a.kv_lengths = {};
                                    a.key.shape[2] = a.value.shape[2] = a.grad_key.shape[2] = a.grad_value.shape[2] =
                                        std::max<int64_t>(a.key.shape[2] - 1, 0);
                                }),
                                "other bits");
        std::vector<float> elsewhere(1 << 20);
        caught_writes += contains(failure([&](polyhead_args &a, int64_t) {
                                      if (a.grad_value.shape[2] > 0) {
                                          a.grad_value.data = elsewhere.data();
                                      }
                                  }),
                                  "grad_value");
    }
    CHECK(caught_lse >= 5);
    CHECK(caught_rows >= 5);
    CHECK(caught_writes >= 5);
}
