// The checks in 16 bits: the plain formula in that type passes, so does f32 arithmetic rounded once, and planted faults are caught.
#include <cmath>
#include <functional>

#include "instruments/calls/dense.h"
#include "instruments/calls/problems.h"
#include "instruments/calls/weights.h"
#include "instruments/reference/tolerance.h"
#include "support/catch.h"
#include "support/check.h"
#include "support/shapes.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// The values of a 16-bit view as a dense f32 tensor.
struct Decoded {
    std::vector<float> values;
    polyhead_tensor view{};
    explicit Decoded(const polyhead_tensor &stored) {
        if (stored.rank != 0) {
            for_each_offset(stored, [&](int64_t offset, int64_t, int64_t, int64_t) {
                for (int64_t i = offset; i < offset + stored.shape[stored.rank - 1]; i++) {
                    values.push_back(from_storage_bits(static_cast<const uint16_t *>(stored.data)[i], stored.dtype));
                }
            });
            view = dense(values, std::vector<int64_t>(stored.shape, stored.shape + stored.rank));
        }
    }
};

void write_16_bit(const polyhead_tensor &tensor, const std::vector<float> &values) {
    size_t next = 0;
    for_each_offset(tensor, [&](int64_t offset, int64_t, int64_t, int64_t) {
        for (int64_t i = offset; i < offset + tensor.shape[tensor.rank - 1]; i++) {
            static_cast<uint16_t *>(tensor.data)[i] = to_storage_bits(values[next++], tensor.dtype);
        }
    });
}

void write_lse(const polyhead_tensor &tensor, const std::vector<float> &values) {
    size_t next = 0;
    if (tensor.rank != 0) {
        for_each_row(tensor, [&](float *row, int64_t, int64_t, int64_t) {
            for (int64_t q = 0; q < tensor.shape[2]; q++) {
                row[q] = values[next++];
            }
        });
    }
}

using Fault = std::function<void(const polyhead_args &)>;

// The plain formula as if it were a kernel; storage says what scores and probs are rounded to.
Subject plain_subject(const Problem &p, const LayerWeights &weights, int32_t storage, Fault after = nullptr) {
    Subject subject;
    subject.name = "plain_formula";
    subject.problem = p;
    subject.weights = weights.reference();
    subject.run = [p, &weights, storage, after](const polyhead_args &given) {
        const Decoded query(given.query), key(given.key), value(given.value);
        polyhead_args args = given;
        args.query = query.view;
        args.key = key.view;
        args.value = value.view;
        const RowSets rows = all_rows(p, args);
        write_16_bit(given.out, evaluate<float>(p, args, weights.reference(), rows, {storage}).out);
        write_lse(given.lse, evaluate<float>(p, args, weights.reference(), rows).lse);
        if (after) {
            after(given);
        }
        return polyhead_status{};
    };
    return subject;
}

std::vector<Problem> problems_of(int32_t dtype) {
    Problem masked = sdpa_problem(4, 9, 2, 6);
    masked.causal = POLYHEAD_BOTTOM_RIGHT;
    masked.kv_lengths = masked.lse = 1;
    Problem layer = mha_problem(24, 3), linear = linear_problem(31, 18);
    layer.bias = linear.bias = 1;
    std::vector<Problem> problems = {masked, sdpa_problem(2, 33), layer, linear};
    for (Problem &p : problems) {
        p.dtype = dtype;
    }
    return problems;
}

uint16_t &stored(const polyhead_tensor &t, int64_t b, int64_t h, int64_t q, int64_t d) {
    return static_cast<uint16_t *>(t.data)[b * t.stride[0] + h * t.stride[1] + q * t.stride[2] + d];
}

} // namespace

TEST_CASE("16 bits: the plain formula passes, rounded at every step or once at the end") {
    for (int32_t dtype : {POLYHEAD_F16, POLYHEAD_BF16}) {
        for (const Problem &p : problems_of(dtype)) {
            const LayerWeights weights(p, 7);
            for (const Shape &shape : awkward_shapes(p, 8, 40)) {
                if (shape.seq_len_q * shape.seq_len_kv < 20000) {
                    // Logits far apart or huge values: there only a kernel that keeps f32 stays within the fixed limit.
                    if (shape.values == Values::normal) {
                        CHECK(check_answer(plain_subject(p, weights, dtype), shape) == "");
                    }
                    CHECK(check_answer(plain_subject(p, weights, POLYHEAD_F32), shape) == "");
                }
            }
            CHECK(check_same_bits(plain_subject(p, weights, dtype), same_bits_shape(p, 10)) == "");
        }
    }
}

TEST_CASE("16 bits: planted faults are caught") {
    for (int32_t dtype : {POLYHEAD_F16, POLYHEAD_BF16}) {
        const Problem p = problems_of(dtype)[0];
        const LayerWeights weights(p, 7);
        const auto caught = [&](Fault after, const char *part, int32_t storage) {
            const std::string failure = check_answer(plain_subject(p, weights, storage, after), crowded_shape());
            INFO(failure);
            CHECK(failure.find(part) != std::string::npos);
            CHECK(failure.find(dtype == POLYHEAD_F16 ? "--dtype f16" : "--dtype bf16") != std::string::npos);
        };
        caught([](const polyhead_args &a) { stored(a.out, 0, 3, 10, 5) ^= 0x8000; }, "1 of", dtype);
        caught([](const polyhead_args &a) { stored(a.out, 0, 3, 10, 5) += 16; }, "1 of", dtype);
        caught([](const polyhead_args &a) { stored(a.out, 0, 0, 1, 0) = 0x7fff; }, "out[6] is NaN", dtype);
        caught([](const polyhead_args &a) { stored(a.out, 1, 2, 3, 4) = GuardedBuffer::canary_16; }, "was not written", dtype);
        caught([](const polyhead_args &a) { stored(a.out, 0, 0, 0, 6) = 0; }, "outside", dtype);
        caught([](const polyhead_args &a) { stored(a.out, 2, 0, 0, 0) = 1; }, "exactly 0", dtype);
        caught([](const polyhead_args &a) { static_cast<float *>(a.lse.data)[0] += 1e-3f; }, "lse[0]", dtype); // lse stays f32
        if (dtype == POLYHEAD_F16) {
            caught(nullptr, "elements wrong", POLYHEAD_BF16); // bf16 for f16
        } else {
            caught([](const polyhead_args &a) { write_16_bit(a.out, std::vector<float>(3 * 4 * 11 * 6, 0.0f)); }, "elements wrong", dtype);
        }
    }
}

TEST_CASE("16 bits: scores, probs and out are rounded one by one") {
    Problem p = sdpa_problem(1, 1);
    p.dtype = POLYHEAD_BF16;
    // Scores 1 and 1 + 2^-9: the second rounds to 1, so both weigh 1/2, and out = (0 + 1 + 2^-6) / 2 is a bf16 number.
    const std::vector<float> query = {1}, key = {1, 1 + 0x1p-9f}, value = {0, 1 + 0x1p-6f};
    const polyhead_args args = sdpa_args(p, 1, query, key, value);
    const auto out_of = [&](int32_t storage, const polyhead_args &a) {
        return evaluate<double>(p, a, {}, all_rows(p, a), {storage}).out[0];
    };
    CHECK(out_of(POLYHEAD_BF16, args) == 0.5 + 0x1p-7);
    CHECK(out_of(POLYHEAD_F32, args) > 0.5 + 0x1p-7 + 4e-4);
    // Each prob is 1/3 rounded: 171 * 2^-9 in bf16, 1365 * 2^-12 in f16. Two of them are a number of the type again.
    const std::vector<float> same = {0, 0, 0}, two_of_three = {1, 1, 0};
    const polyhead_args equal = sdpa_args(p, 1, query, same, two_of_three);
    CHECK(out_of(POLYHEAD_BF16, equal) == 171 * 0x1p-8);
    CHECK(out_of(POLYHEAD_F16, equal) == 1365 * 0x1p-11);
}

TEST_CASE("16 bits: the tolerance in numbers") {
    CHECK(tolerance_16_bit(POLYHEAD_F16, 0.0, 1.0, {1e-4, 0.0}, false) == Approx(2.1e-4));
    CHECK(tolerance_16_bit(POLYHEAD_BF16, 0.0, 1.0, {1e-3, 0.0}, false) == Approx(2.01e-3));
    CHECK(tolerance_16_bit(POLYHEAD_F16, 0.5, 1.0, {1.0, 0.0}, false) == Approx(1e-2));
    CHECK(tolerance_16_bit(POLYHEAD_BF16, 5.49, 1.0, {1e-3, 0.0}, false) == Approx(0.03126)); // half of 2^-5
    CHECK(tolerance_16_bit(POLYHEAD_BF16, -4.0, 1.0, {1.0, 0.0}, false) == Approx(0.2));
    CHECK(tolerance_16_bit(POLYHEAD_F16, 0.0, 1.0, {INFINITY, 0.0}, false) == Approx(1e-2)); // the plain formula overflowed
    CHECK(tolerance_16_bit(POLYHEAD_F16, 0.0, 1.0, {INFINITY, 0.0}, true) == Approx(1e-2));
    CHECK(tolerance_16_bit(POLYHEAD_F16, 0.0, 1e4, {0.0, 0.0}, false) == Approx(0.1));       // as f32
    CHECK(tolerance_16_bit(POLYHEAD_F16, 0.0, 1e4, {100.0, 10.0}, false) == Approx(40.1));   // f32 errs by 10 there
    CHECK(tolerance_16_bit(POLYHEAD_BF16, 0.0, 1e4, {100.0, 0.0}, false) == Approx(78.125)); // two roundings of a prob
    CHECK(tolerance_16_bit(POLYHEAD_BF16, 0.0, 1.0, {0.3, 0.0}, true) == Approx(0.60001));   // heads were rounded
}

TEST_CASE("16 bits: inputs hold the same values twice") {
    for (int32_t dtype : {POLYHEAD_F16, POLYHEAD_BF16}) {
        const Problem p = problems_of(dtype)[0];
        Shape shape = crowded_shape();
        shape.values = Values::huge_values;
        const Inputs inputs(p, shape);
        const Decoded stored_value(inputs.args().value);
        std::vector<float> values;
        for_each_row(inputs.reference_args().value,
                     [&](float *row, int64_t, int64_t, int64_t) { values.insert(values.end(), row, row + 6); });
        REQUIRE(values.size() == stored_value.values.size());
        int different = 0, not_finite = 0;
        for (size_t i = 0; i < values.size(); i++) {
            different += float_bits(values[i]) != float_bits(stored_value.values[i]);
            not_finite += !std::isfinite(values[i]);
        }
        CHECK(different == 0);
        CHECK(not_finite > 0);
        CHECK(inputs.args().value.dtype == dtype);
        CHECK(inputs.args().out.dtype == dtype);
        CHECK(inputs.args().lse.dtype == POLYHEAD_F32);
        CHECK(inputs.reference_args().query.dtype == POLYHEAD_F32);
    }
}
