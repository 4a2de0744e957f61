// Rotations by positions in two or three directions: rotate, append, and the rules of a call.
#include <cmath>

#include <polyhead/cache.h>

#include "instruments/calls/random.h"
#include "runtime_features.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

constexpr int64_t rows = 9, tokens = 4, entries = 20, count = 8; // rows and pairs of the tables

struct Case {
    bool interleaved, trailing;
    Sections sections;
};

const std::vector<Case> cases = {
    {false, false, {POLYHEAD_SECTIONS_CONTIGUOUS, 2, 3, 3}}, {true, true, {POLYHEAD_SECTIONS_CONTIGUOUS, 5, 3}},
    {false, true, {POLYHEAD_SECTIONS_INTERLEAVED, 3, 3, 2}}, {true, false, {POLYHEAD_SECTIONS_INTERLEAVED, 5, 1, 2}},
    {false, false, {POLYHEAD_SECTIONS_PARTS, 1, 5, 2}},      {false, true, {POLYHEAD_SECTIONS_PARTS, 4, 4}},
    {true, false, {POLYHEAD_SECTIONS_PARTS, 2, 2, 4}},
};

struct Pair {
    int64_t first, second, direction;
};

// Written out as the header says it.
Pair pair_of(const Case &c, int64_t i) {
    const int64_t sizes[] = {c.sections.section_1, c.sections.section_2, c.sections.section_3},
                  begin = c.trailing ? entries - 2 * count : 0;
    Pair pair{begin + (c.interleaved ? 2 * i : i), begin + (c.interleaved ? 2 * i + 1 : i + count), 0};
    if (c.sections.rope_sections == POLYHEAD_SECTIONS_INTERLEAVED) {
        const int64_t j = i / 3;
        pair.direction = i == 3 * j + 1 && j < sizes[1] ? 1 : i == 3 * j + 2 && j < sizes[2] ? 2 : 0;
        return pair;
    }
    int64_t before = 0;
    while (i >= before + sizes[pair.direction]) {
        before += sizes[pair.direction++];
    }
    if (c.sections.rope_sections == POLYHEAD_SECTIONS_PARTS && !c.interleaved) {
        pair.first = begin + 2 * before + i - before;
        pair.second = pair.first + sizes[pair.direction];
    }
    return pair;
}

struct Tables {
    std::vector<float> cos, sin;
    Tables() {
        for (int64_t i = 0; i < rows * count; i++) {
            const float angle = float(i / count) / float(1 + i % count);
            cos.push_back(std::cos(angle));
            sin.push_back(std::sin(angle));
        }
    }
    Rotation rotation(const Case &c, const TensorView &positions) const {
        Rotation r;
        r.cos = view(cos.data(), {rows, count});
        r.sin = view(sin.data(), {rows, count});
        r.positions = positions;
        r.interleaved = c.interleaved;
        r.trailing = c.trailing;
        r.sections = c.sections;
        return r;
    }
};

std::vector<float> random_rows() {
    Random random(8);
    std::vector<float> x(size_t(B * H * tokens * entries));
    for (float &value : x) {
        value = random.normal();
    }
    return x;
}

// The largest difference to the formula; position(b, direction, t).
template <class Position>
double difference(const std::vector<float> &input, const std::vector<float> &out, const Case &c, const Tables &tables, Position position) {
    double worst = 0;
    for (int64_t row = 0; row < B * H * tokens; row++) {
        std::vector<double> expected(input.begin() + row * entries, input.begin() + (row + 1) * entries);
        for (int64_t i = 0; i < count; i++) {
            const Pair pair = pair_of(c, i);
            const auto at = size_t(position(row / (H * tokens), pair.direction, row % tokens) * count + i);
            const double x = expected[size_t(pair.first)], y = expected[size_t(pair.second)];
            expected[size_t(pair.first)] = x * double(tables.cos[at]) - y * double(tables.sin[at]);
            expected[size_t(pair.second)] = y * double(tables.cos[at]) + x * double(tables.sin[at]);
        }
        for (int64_t d = 0; d < entries; d++) {
            worst = std::max(worst, std::abs(expected[size_t(d)] - double(out[size_t(row * entries + d)])));
        }
    }
    return worst;
}

} // namespace

TEST_CASE("sections: rotate and append", "[runtime]") {
    const Tables tables;
    const std::vector<float> input = random_rows();
    std::vector<int32_t> each;
    for (int32_t i = 0; i < B * 3 * tokens; i++) {
        each.push_back(i * 5 % int32_t(rows));
    }
    const std::vector<int32_t> first = {5, 2}, lengths = {1, 3};
    for (const Case &c : cases) {
        const int64_t directions = c.sections.section_3 > 0 ? 3 : 2;
        INFO("kind " << c.sections.rope_sections << ", " << directions << " directions");
        const TensorView of_each = view(each.data(), {B, directions, tokens}), x = view(input.data(), {B, H, tokens, entries});
        const auto by_direction = [&](int64_t b, int64_t direction, int64_t t) {
            return each[size_t((b * directions + direction) * tokens + t)];
        };
        std::vector<float> out(input.size());
        REQUIRE(rotate(x, tables.rotation(c, of_each), view(out.data(), {B, H, tokens, entries})).ok());
        CHECK(difference(input, out, c, tables, by_direction) < 1e-6);
        std::vector<float> same(input);
        REQUIRE(rotate(x, tables.rotation(c, view(first.data(), {B})), view(same.data(), {B, H, tokens, entries})).ok());
        CHECK(difference(input, same, c, tables, [&](int64_t b, int64_t, int64_t t) { return first[size_t(b)] + t; }) < 1e-6);

        constexpr int64_t capacity = 8;
        std::vector<float> key(size_t(B * H * capacity * entries)), found;
        Cache cache;
        cache.key = view(key.data(), {B, H, capacity, entries});
        NewKeys keys;
        keys.key = x;
        keys.lengths = view(lengths.data(), {B});
        keys.rotation = tables.rotation(c, of_each);
        REQUIRE(append(cache, keys).ok());
        for (int64_t row = 0; row < B * H; row++) {
            const auto from = key.begin() + (row * capacity + lengths[size_t(row / H)]) * entries;
            found.insert(found.end(), from, from + tokens * entries);
        }
        CHECK(found == out);
    }
}

TEST_CASE("sections: what rotate and append refuse", "[runtime]") {
    const Tables tables;
    const std::vector<float> input = random_rows();
    std::vector<float> out(input.size());
    std::vector<int32_t> each(size_t(B * 3 * tokens));
    const auto refused = [&](const Case &c, const TensorView &positions, const char *sentence) {
        const Rotation rotation = tables.rotation(c, positions);
        CHECK(std::string(
                  rotate(view(input.data(), {B, H, tokens, entries}), rotation, view(out.data(), {B, H, tokens, entries})).message()) ==
              sentence);
    };
    const TensorView three = view(each.data(), {B, 3, tokens}), one = view(each.data(), {B, tokens});
    refused({false, false, {4, 2, 3, 3}}, three, "rope_sections: value 4, expected 0 (none), 1 (contiguous), 2 (interleaved) or 3 (parts)");
    refused({false, false, {1, 2, 3, 2}}, three, "section_3: value 2, expected 3, because all sections have rotary_dim / 2 pairs");
    refused({false, false, {0, 2, 0, 0}}, one, "section_1: value 2, expected 0 without rope_sections");
    refused({false, false, {1, 2, 3, 3}}, one, "positions: rank 2, expected 3");
    refused({false, false, {0, 0, 0, 0}}, three, "positions: rank 3, expected 1");
    refused({false, false, {1, 4, 4, 0}}, three, "positions: extent 3 of dimension 1, expected 2 as in sections");
    each[size_t(3 * tokens + 2 * tokens + 1)] = rows; // row 1, direction 2, token 1
    refused({false, false, {1, 2, 3, 3}}, three, "positions: token 1 of batch row 1 is at position 9, expected 0 to 8 (rows of rope_cos)");
    Rotation nothing;
    nothing.sections = {1, 2, 3, 3};
    CHECK(std::string(rotate(view(input.data(), {B, H, tokens, entries}), nothing, view(out.data(), {B, H, tokens, entries})).message()) ==
          "rope_sections: given, expected none, because nothing is rotated");
}

namespace {

// Sequences of 3, 0 and 1 new tokens behind 1, 0 and 2 keys.
struct Packed {
    static constexpr int64_t batch = 3, total = tokens, capacity = 5;
    const std::vector<int32_t> begins = {0, 3, 3, 4}, lengths = {1, 0, 2}, first = {5, 8, 2};
    const std::vector<float> input = random_rows(); // of which the first are [1,H,total,entries]
    const Tables tables;
    std::vector<int32_t> each; // [1,3,total]

    Packed() {
        for (int32_t i = 0; i < 3 * total; i++) {
            each.push_back(i * 5 % int32_t(rows));
        }
    }
    // Some of the tokens, with their positions.
    NewKeys keys(const Case &c, int64_t begin, int64_t end, const TensorView &positions) const {
        NewKeys made;
        made.key = view(input.data() + begin * entries, {1, H, end - begin, entries});
        made.key.stride[1] = total * entries;
        made.rotation = tables.rotation(c, positions);
        return made;
    }
    NewKeys all(const Case &c, const TensorView &positions) const {
        NewKeys made = keys(c, 0, total, positions);
        made.lengths = view(lengths.data(), {batch});
        made.cu_seqlens = view(begins.data(), {batch + 1});
        return made;
    }
    static std::vector<float> memory() { return std::vector<float>(size_t(batch * H * capacity * entries), 0.5f); }
    static Cache cache(std::vector<float> *key, int64_t first_row, int64_t count_of_rows) {
        Cache made;
        made.key = view(key->data() + first_row * H * capacity * entries, {count_of_rows, H, capacity, entries});
        return made;
    }
    // Each sequence alone. positions_of(b): of its tokens.
    template <class Positions> std::vector<float> one_by_one(const Case &c, Positions positions_of) const {
        std::vector<float> key = memory();
        for (int64_t b = 0; b < batch; b++) {
            NewKeys one = keys(c, begins[size_t(b)], begins[size_t(b + 1)], positions_of(b));
            one.lengths = view(lengths.data() + b, {1});
            CHECK(append(cache(&key, b, 1), one).ok());
        }
        return key;
    }
};

} // namespace

TEST_CASE("sections: packed tokens have the bits of one call for each sequence", "[runtime]") {
    const Packed packed;
    for (const Case &c : cases) {
        const int64_t directions = c.sections.section_3 > 0 ? 3 : 2;
        INFO("kind " << c.sections.rope_sections << ", " << directions << " directions");
        std::vector<float> key = Packed::memory();
        REQUIRE(
            append(Packed::cache(&key, 0, Packed::batch), packed.all(c, view(packed.each.data(), {1, directions, Packed::total}))).ok());
        CHECK(key != Packed::memory());
        CHECK(key == packed.one_by_one(c, [&](int64_t b) {
            const int32_t begin = packed.begins[size_t(b)];
            TensorView part = view(packed.each.data() + begin, {1, directions, packed.begins[size_t(b + 1)] - begin});
            part.stride[1] = Packed::total;
            return part;
        }));
        key = Packed::memory();
        REQUIRE(append(Packed::cache(&key, 0, Packed::batch), packed.all(c, view(packed.first.data(), {Packed::batch}))).ok());
        CHECK(key == packed.one_by_one(c, [&](int64_t b) { return view(packed.first.data() + b, {1}); }));
    }
}

TEST_CASE("sections: what append refuses of packed tokens", "[runtime]") {
    const Packed packed;
    std::vector<int32_t> positions(size_t(Packed::batch * 3 * Packed::total));
    const auto refused = [&](const std::vector<int64_t> &shape, const char *sentence) {
        std::vector<float> key = Packed::memory();
        const TensorView given(positions.data(), DType::i32, int32_t(shape.size()), shape.data());
        const Status status = append(Packed::cache(&key, 0, Packed::batch), packed.all({false, false, {1, 2, 3, 3}}, given));
        CHECK(std::string(status.message()) == sentence);
        CHECK(key == Packed::memory());
    };
    refused({Packed::batch, 3, Packed::total}, "positions: extent 3 of dimension 0, expected 1 as in key");
    refused({1, 2, Packed::total}, "positions: extent 2 of dimension 1, expected 3 as in sections");
    refused({1, 3, Packed::total - 1}, "positions: extent 3 of dimension 2, expected 4 as in key");
    refused({1, Packed::total}, "positions: rank 2, expected 3");
    refused({2}, "positions: extent 2 of dimension 0, expected 3 as in lengths");
    positions[size_t(2 * Packed::total + 3)] = rows; // direction 2 of the only token of row 2
    refused({1, 3, Packed::total}, "positions: token 0 of batch row 2 is at position 9, expected 0 to 8 (rows of rope_cos)");
}

TEST_CASE("sections: the positions of a call", "[runtime]") {
    FeatureCall call;
    call.built().rope_sections = POLYHEAD_SECTIONS_CONTIGUOUS;
    call.built().section_1 = call.built().section_2 = call.built().section_3 = 1;
    std::vector<int32_t> positions_q(size_t(B * 3 * T_q)), positions_kv(size_t(B * 3 * T_kv));
    call.refused(POLYHEAD_WRONG_SHAPE, "positions_q: rank 2, expected 3");
    call.args.positions_q = view(positions_q.data(), {B, 3, T_q});
    call.args.positions_kv = view(positions_kv.data(), {B, 3, T_kv});
    call.accepted();
    call.args.positions_kv.shape[1] = 2;
    call.refused(POLYHEAD_WRONG_SHAPE, "positions_kv: extent 2 of dimension 1, expected 3");
    call.args.positions_kv.shape[1] = 3;
    positions_q[size_t((1 * 3 + 2) * T_q + 1)] = int32_t(P);
    call.refused(POLYHEAD_BAD_VALUE, "positions_q: value 12 at index 1, 2, 1, expected 0 to 11 (rows of rope_cos)");
    positions_q[size_t((1 * 3 + 2) * T_q + 1)] = 0;
    positions_kv[size_t((0 * 3 + 1) * T_kv + 3)] = -1;
    call.refused(POLYHEAD_BAD_VALUE, "positions_kv: value -1 at index 0, 1, 3, expected 0 to 11 (rows of rope_cos)");
    call.args.positions_q = call.args.positions_kv = polyhead_tensor{}; // the same in all directions
    call.accepted();
}
