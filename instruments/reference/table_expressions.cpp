// Expressions of the tests that ask for gradients of their tensors.
#include "expressions.h"

#include <algorithm>
#include <cmath>

#include "point_functions.h"

namespace polyhead::test {

namespace {

#define POLYHEAD_READS(...)                                                                                                                \
    []([[maybe_unused]] const ExpressionPoint<double> &at, const OnRead<double> &read) {                                                   \
        using Real [[maybe_unused]] = double;                                                                                              \
        __VA_ARGS__                                                                                                                        \
    },                                                                                                                                     \
        []([[maybe_unused]] const ExpressionPoint<float> &at, const OnRead<float> &read) {                                                 \
            using Real [[maybe_unused]] = float;                                                                                           \
            __VA_ARGS__                                                                                                                    \
        }

constexpr int32_t B = POLYHEAD_EXTENT_B, H = POLYHEAD_EXTENT_H, Q = POLYHEAD_EXTENT_Q, KV = POLYHEAD_EXTENT_KV;

template <class Real> int64_t bucket(const ExpressionPoint<Real> &at) {
    const int64_t distance = std::abs(at.position - at.kv);
    return (at.position < at.kv ? 8 : 0) + (distance < 4 ? distance : std::min<int64_t>(4 + (distance - 4) / 8, 7));
}

template <class Real> int64_t swin_index(const ExpressionPoint<Real> &at) { // beyond both ends of the table
    return std::clamp<int64_t>(5 * at.integer(1, {at.q, at.kv}) + (at.q + at.kv) % 5, 0, 12);
}

template <class Real> int64_t away(const ExpressionPoint<Real> &at) {
    return std::min<int64_t>(std::abs(at.kv - at.position), 23);
}

void add_tables(std::vector<ExpressionCase> &cases) {
    cases.push_back({
        "buckets of distances", // T5
            "tensor table: f32[16, h]; let n = abs(p - kv); "
            "score = score + table[select(p < kv, 8, 0) + select(n < 4, n, min(4 + (n - 4) / 8, 7)), h]; grad table",
            {{"table", POLYHEAD_F32, 2, {16, H}, nullptr}}, POLYHEAD_OF_POINT(return at.score + at.number(0, {bucket(at), at.h});),
            POLYHEAD_OF_POINT(return Real(1);), nullptr, -2, 2, {0}, POLYHEAD_READS(read(0, {bucket(at), at.h}, Real(1));)
    });
    cases.push_back({
        "table by a tensor", // Swin
            "tensor table: f32[h, 529]; tensor index: i32[q, kv]; score = score + table[h, index[q, kv]]; grad table",
            {{"table", POLYHEAD_F32, 2, {H, 529}, nullptr}, {"index", POLYHEAD_I32, 2, {Q, KV}, nullptr}},
            POLYHEAD_OF_POINT(return at.score + at.number(0, {at.h, std::max<int64_t>(at.integer(1, {at.q, at.kv}), 0)});),
            POLYHEAD_OF_POINT(return Real(1);), nullptr, -1, 2, {0},
            POLYHEAD_READS(read(0, {at.h, std::max<int64_t>(at.integer(1, {at.q, at.kv}), 0)}, Real(1));)
    });
    cases.push_back({
        "table by an index",
            "tensor table: f32[h, 13]; tensor index: i32[q, kv]; "
            "score = score + table[h, 5 * index[q, kv] + (q + kv) % 5]; grad table",
            {{"table", POLYHEAD_F32, 2, {H, 13}, nullptr}, {"index", POLYHEAD_I32, 2, {Q, KV}, nullptr}},
            POLYHEAD_OF_POINT(return at.score + at.number(0, {at.h, swin_index(at)});), POLYHEAD_OF_POINT(return Real(1);), nullptr, -1, 2,
            {0}, POLYHEAD_READS(read(0, {at.h, swin_index(at)}, Real(1));)
    });
}

void add_reads(std::vector<ExpressionCase> &cases) {
    cases.push_back({
        "tables read twice",
            "tensor near: f32[24]; tensor scale: f32[h]; tensor shift: f32; "
            "score = score * scale[h] + near[abs(kv - p)] * near[kv / 2] + tanh(0.25 * shift * score); "
            "mask = kv <= p + 3; grad near; grad shift; grad scale",
            {{"near", POLYHEAD_F32, 1, {24}, nullptr}, {"scale", POLYHEAD_F32, 1, {H}, nullptr}, {"shift", POLYHEAD_F32, 0, {}, nullptr}},
            POLYHEAD_OF_POINT(return at.score * at.number(1, {at.h}) +
                                         at.number(0, {away(at)}) * at.number(0, {std::min<int64_t>(at.kv / 2, 23)}) +
                                         std::tanh(Real(0.25) * at.number(2, {0}) * at.score);),
            POLYHEAD_OF_POINT(const Real bent = std::tanh(Real(0.25) * at.number(2, {0}) * at.score);
                              return at.number(1, {at.h}) + Real(0.25) * at.number(2, {0}) * (1 - bent) * (1 + bent);),
            [](const ExpressionPoint<double> &at) { return at.kv <= at.position + 3; }, -1, 1, {0, 1, 2},
            POLYHEAD_READS(const int64_t i = away(at), j = std::min<int64_t>(at.kv / 2, 23);
                           const Real bent = std::tanh(Real(0.25) * at.number(2, {0}) * at.score); read(0, {i}, at.number(0, {j}));
                           read(0, {j}, at.number(0, {i})); read(1, {at.h}, at.score);
                           read(2, {0}, Real(0.25) * at.score * (1 - bent) * (1 + bent));)
    });
    cases.push_back({
        "tokens and branches",
            "tensor rows: f32[b, h, q]; tensor columns: f32[b, kv]; tensor cells: f32[2, h, 3, 4]; "
            "score = score + select(kv % 3 == 1, columns[b, kv] * exp(0.5 * rows[b, h, q]), rows[b, h, q]) / 2 - "
            "cells[kv % 2, h, q % 3, (q + 3 * kv) % 4]; grad columns; grad rows; grad cells",
            {{"rows", POLYHEAD_F32, 3, {B, H, Q}, nullptr},
             {"columns", POLYHEAD_F32, 2, {B, KV}, nullptr},
             {"cells", POLYHEAD_F32, 4, {2, H, 3, 4}, nullptr}},
            POLYHEAD_OF_POINT(const Real row = at.number(0, {at.b, at.h, at.q}), column = at.number(1, {at.b, at.kv});
                              return at.score + (at.kv % 3 == 1 ? column * std::exp(Real(0.5) * row) : row) / 2 -
                                     at.number(2, {at.kv % 2, at.h, at.q % 3, (at.q + 3 * at.kv) % 4});),
            POLYHEAD_OF_POINT(return Real(1);), nullptr, -1, 1, {0, 1, 2},
            POLYHEAD_READS(
                const Real row = at.number(0, {at.b, at.h, at.q}), column = at.number(1, {at.b, at.kv}), grown = std::exp(Real(0.5) * row);
                if (at.kv % 3 == 1) {
                    read(0, {at.b, at.h, at.q}, column * grown / 4);
                    read(1, {at.b, at.kv}, grown / 2);
                } else { read(0, {at.b, at.h, at.q}, Real(0.5)); } //
                read(2, {at.kv % 2, at.h, at.q % 3, (at.q + 3 * at.kv) % 4}, Real(-1));)
    });
}

} // namespace

const std::vector<ExpressionCase> &table_cases() {
    static const std::vector<ExpressionCase> cases = [] {
        std::vector<ExpressionCase> all;
        add_tables(all);
        add_reads(all);
        return all;
    }();
    return cases;
}

} // namespace polyhead::test
