// The expressions of the tests.
#include "expressions.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "point_functions.h"
#include "random_words.h"
#include "reference.h"
#include "visibility.h"

namespace polyhead::test {

namespace {

void add_cases_of_models(std::vector<ExpressionCase> &cases) {
    cases.push_back({
        "relative position bias", "tensor table: f32[h, 33]; score = score + table[h, max(0, min(32, kv - p + 16))]",
            {{"table", POLYHEAD_F32, 2, {POLYHEAD_EXTENT_H, 33}}},
            POLYHEAD_OF_POINT(return at.score + at.number(0, {at.h, std::clamp<int64_t>(at.kv - at.position + 16, 0, 32)});),
            POLYHEAD_OF_POINT(return Real(1);), nullptr, -2, 2
    });
    cases.push_back({"document mask",
                     "tensor document_q: i32[b, q]; tensor document_kv: i32[b, kv]; mask = document_q[b, q] == document_kv[b, kv]",
                     {{"document_q", POLYHEAD_I32, 2, {POLYHEAD_EXTENT_B, POLYHEAD_EXTENT_Q}},
                      {"document_kv", POLYHEAD_I32, 2, {POLYHEAD_EXTENT_B, POLYHEAD_EXTENT_KV}}},
                     nullptr,
                     nullptr,
                     nullptr,
                     nullptr,
                     [](const ExpressionPoint<double> &at) { return at.integer(0, {at.b, at.q}) == at.integer(1, {at.b, at.kv}); },
                     0,
                     2});
    cases.push_back({
        "soft threshold",
            "tensor threshold: f32; let t = abs(threshold); "
            "score = select(score > t, score - t, select(score < -t, score + t, 0))",
            {{"threshold", POLYHEAD_F32, 0, {}}},
            POLYHEAD_OF_POINT(const Real t = std::abs(at.number(0, {0})); return at.score > t    ? at.score - t
                                                                                 : at.score < -t ? at.score + t
                                                                                                 : Real(0);),
            POLYHEAD_OF_POINT(return std::abs(at.score) > std::abs(at.number(0, {0})) ? Real(1) : Real(0);), nullptr, -1, 1
    });
    cases.push_back({"prefix",
                     "tensor prefix: i32[b]; mask = kv < prefix[b] or kv <= p",
                     {{"prefix", POLYHEAD_I32, 1, {POLYHEAD_EXTENT_B}}},
                     nullptr,
                     nullptr,
                     nullptr,
                     nullptr,
                     [](const ExpressionPoint<double> &at) { return at.kv < at.integer(0, {at.b}) || at.kv <= at.position; },
                     0,
                     40});
}

void add_mixtures(std::vector<ExpressionCase> &cases) {
    cases.push_back({
        "band",
            "tensor reach: i32[b]; tensor open: bool[h]; score = score - log(1 + 0.25 * abs(kv - p)); "
            "mask = kv <= p + reach[b] and kv >= p - 30 and (open[h] or kv % 2 == 0)",
            {{"reach", POLYHEAD_I32, 1, {POLYHEAD_EXTENT_B}}, {"open", POLYHEAD_BOOL, 1, {POLYHEAD_EXTENT_H}}},
            POLYHEAD_OF_POINT(return at.score - std::log(Real(1) + Real(0.25) * Real(std::abs(at.kv - at.position)));),
            POLYHEAD_OF_POINT(return Real(1);),
            [](const ExpressionPoint<double> &at) {
                return at.kv <= at.position + at.integer(0, {at.b}) && at.kv >= at.position - 30 &&
                       (at.boolean(1, {at.h}) || at.kv % 2 == 0);
            },
            0, 20
    });
    cases.push_back({
        "functions",
            "tensor levels: f32[*]; score = 8 * tanh(score / 8) + levels[h % 3] * exp(-abs(kv - p) / 16.0) + "
            "0.1 * sqrt(1 + score * score); mask = kv_length - kv > h % 2 or kv == 0",
            {{"levels", POLYHEAD_F32, 1, {POLYHEAD_EXTENT_FREE}}},
            POLYHEAD_OF_POINT(return Real(8) * std::tanh(at.score / Real(8)) +
                                         at.number(0, {at.h % 3}) * std::exp(-Real(std::abs(at.kv - at.position)) / Real(16)) +
                                         Real(0.1) * std::sqrt(Real(1) + at.score * at.score);),
            POLYHEAD_OF_POINT(const Real part = std::tanh(at.score / Real(8));
                              return Real(1) - part * part + Real(0.1) * at.score / std::sqrt(Real(1) + at.score * at.score);),
            [](const ExpressionPoint<double> &at) { return at.kv_length - at.kv > at.h % 2 || at.kv == 0; }, -1, 1
    });
    cases.push_back({
        "random numbers", "tensor seed: i32; score = score + uniform(seed, 3, h, q, kv) - 0.5 * uniform(7, -kv, p, kv, h)",
            {{"seed", POLYHEAD_I32, 0, {}}},
            POLYHEAD_OF_POINT(return at.score + Real(uniform(at.integer(0, {0}), 3, at.h, at.q, at.kv)) -
                                         Real(0.5) * Real(uniform(7, -at.kv, at.position, at.kv, at.h));),
            POLYHEAD_OF_POINT(return Real(1);), nullptr, -100, 100
    });
    // Numbers of a text are floats, and 0.9f, which uniform() may give, is less than 0.9.
    cases.push_back(
        {"random mask",
         "tensor seed: i32; mask = uniform(seed, 0, h, q, kv) < 0.9 or kv == 0",
         {{"seed", POLYHEAD_I32, 0, {}}},
         nullptr,
         nullptr,
         nullptr,
         nullptr,
         [](const ExpressionPoint<double> &at) { return uniform(at.integer(0, {0}), 0, at.h, at.q, at.kv) < 0.9f || at.kv == 0; },
         -100,
         100});
}

// Kernels carry the text without needless blanks.
std::string without_blanks(std::string text) {
    text.erase(std::remove_if(text.begin(), text.end(), [](char c) { return c == ' ' || c == '\n'; }), text.end());
    return text;
}

int64_t extent_of(int32_t extent, const Problem &p, int64_t batch, int64_t seq_len_q, int64_t seq_len_kv) {
    switch (extent) {
    case POLYHEAD_EXTENT_B:
        return batch;
    case POLYHEAD_EXTENT_H:
        return p.num_heads;
    case POLYHEAD_EXTENT_Q:
        return seq_len_q;
    case POLYHEAD_EXTENT_KV:
        return seq_len_kv;
    case POLYHEAD_EXTENT_FREE:
        return 3;
    default:
        return extent;
    }
}

void fill(const Tensor &tensor, int32_t low, int32_t high, Random &random) {
    const polyhead_tensor &t = tensor.view;
    for_each_offset(t, [&](int64_t offset, int64_t, int64_t, int64_t) {
        for (int64_t i = offset; i < offset + t.shape[t.rank - 1]; i++) {
            if (t.dtype == POLYHEAD_F32) {
                static_cast<float *>(t.data)[i] =
                    static_cast<float>(low) + static_cast<float>(high - low) * static_cast<float>(random.below(1025)) / 1024.0f;
            } else if (t.dtype == POLYHEAD_I32) {
                static_cast<int32_t *>(t.data)[i] = static_cast<int32_t>(random.between(low, high));
            } else {
                static_cast<uint8_t *>(t.data)[i] = static_cast<uint8_t>(random.below(2));
            }
        }
    });
}

} // namespace

const std::vector<ExpressionCase> &expression_cases() {
    static const std::vector<ExpressionCase> cases = [] {
        std::vector<ExpressionCase> all;
        add_cases_of_models(all);
        add_mixtures(all);
        return all;
    }();
    return cases;
}

bool has_expression(const Problem &problem) {
    return problem.expression != nullptr && problem.expression[0] != '\0';
}

const ExpressionCase *expression_of(const Problem &problem) {
    if (!has_expression(problem)) {
        return nullptr;
    }
    for (const std::vector<ExpressionCase> *const cases : {&expression_cases(), &table_cases()}) {
        for (const ExpressionCase &candidate : *cases) {
            if (without_blanks(candidate.text) == without_blanks(problem.expression)) {
                return &candidate;
            }
        }
    }
    std::fprintf(stderr, "no C++ meaning of this expression in instruments/reference/expressions.cpp:\n%s\n", problem.expression);
    std::abort(); // whatever was compared with it would be worthless
}

template <class Real>
ExpressionPoint<Real> expression_point(const Problem &problem, const polyhead_args &args, int64_t b, int64_t h, int64_t q) {
    return {Real(0),
            b,
            h,
            q,
            0,
            position_of(problem, args, b, q),
            num_rows(args),
            num_keys(problem, args),
            key_length(problem, args, b),
            args.expression_tensors};
}

template ExpressionPoint<double> expression_point(const Problem &, const polyhead_args &, int64_t, int64_t, int64_t);
template ExpressionPoint<float> expression_point(const Problem &, const polyhead_args &, int64_t, int64_t, int64_t);

std::vector<Tensor> make_expression_tensors(const Problem &problem, int64_t batch, int64_t seq_len_q, int64_t seq_len_kv, Place place,
                                            Random &random) {
    std::vector<Tensor> tensors;
    const ExpressionCase *expression = expression_of(problem);
    for (size_t i = 0; expression != nullptr && i < expression->tensors.size(); i++) {
        const polyhead_declaration &declaration = expression->tensors[i];
        std::vector<int64_t> shape;
        for (int32_t dim = 0; dim < declaration.rank; dim++) {
            shape.push_back(extent_of(declaration.extents[dim], problem, batch, seq_len_q, seq_len_kv));
        }
        if (shape.empty()) {
            shape.push_back(1); // one number
        }
        tensors.push_back(make_tensor(static_cast<DType>(declaration.dtype), shape, dense_strides(shape), place));
        if (tensors.back().memory.bytes() != 0) {
            fill(tensors.back(), expression->low, expression->high, random);
        }
        tensors.back().memory.make_read_only();
    }
    return tensors;
}

} // namespace polyhead::test
