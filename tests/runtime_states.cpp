// Rotation as an operation of its own, and merging of partial results, against float64.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <polyhead/cache.h>

#include "instruments/calls/random.h"
#include "instruments/reference/half.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

constexpr int64_t B = 2, H = 3, T = 4, d = 70;
constexpr float nothing = -std::numeric_limits<float>::infinity(), nan_value = std::numeric_limits<float>::quiet_NaN();

// Attention over a number of keys: logits and values; the parts of the keys give states.
struct Attention {
    int64_t keys;
    std::vector<double> logits, values; // [B,H,T,keys], [B,H,keys,d]
    std::vector<float> sinks = {0.5f, -2.0f, 3.0f};

    Attention(int64_t keys_, uint64_t seed) : keys(keys_) {
        Random random(seed);
        for (int64_t i = 0; i < B * H * T * keys; i++) {
            logits.push_back(3 * double(random.normal()) + (i % 5 == 0 ? 40 : 0));
        }
        for (int64_t i = 0; i < B * H * keys * d; i++) {
            values.push_back(double(random.normal()));
        }
    }
    // out and lse of keys first .. behind - 1; rows see no key from limit(row) on.
    template <class Limit>
    void answer(int64_t first, int64_t behind, bool with_sinks, const Limit &limit, std::vector<double> *out,
                std::vector<double> *lse) const {
        out->assign(size_t(B * H * T * d), 0.0);
        lse->assign(size_t(B * H * T), -std::numeric_limits<double>::infinity());
        for (int64_t row = 0; row < B * H * T; row++) {
            const int64_t end = std::min(behind, limit(row));
            double sum = with_sinks && first < end ? std::exp(double(sinks[size_t(row / T % H)])) : 0.0;
            for (int64_t n = first; n < end; n++) {
                sum += std::exp(logits[size_t(row * keys + n)]);
            }
            for (int64_t n = first; n < end; n++) {
                for (int64_t i = 0; i < d; i++) {
                    (*out)[size_t(row * d + i)] +=
                        std::exp(logits[size_t(row * keys + n)]) / sum * values[size_t((row / T * keys + n) * d + i)];
                }
            }
            if (first < end) {
                (*lse)[size_t(row)] = std::log(sum);
            }
        }
    }
};

std::vector<float> floats(const std::vector<double> &values) {
    return {values.begin(), values.end()};
}

// Every third row sees no key at all, every other one none of the last part.
int64_t limit_of(int64_t row) {
    return row % 3 == 2 ? 0 : row % 2 == 0 ? 11 : 100;
}

} // namespace

TEST_CASE("merge: parts of the keys give what all of them give", "[runtime]") {
    const Attention attention(17, 5);
    const int64_t borders[] = {0, 4, 5, 12, 17};
    for (const bool with_sinks : {false, true}) {
        std::vector<double> out, lse, part_out, part_lse;
        attention.answer(0, 17, with_sinks, limit_of, &out, &lse);
        std::vector<std::vector<float>> outs, lses;
        std::vector<State> states;
        for (int i = 0; i < 4; i++) {
            attention.answer(borders[i], borders[i + 1], false, limit_of, &part_out, &part_lse);
            outs.push_back(floats(part_out));
            lses.push_back(floats(part_lse));
            for (size_t row = 0; row < lses.back().size(); row++) {
                if (lses.back()[row] == nothing) { // what no kernel wrote is not read
                    std::fill_n(outs.back().begin() + int64_t(row) * d, d, nan_value);
                }
            }
        }
        for (size_t i = 0; i < 4; i++) {
            states.emplace_back(view(outs[i].data(), {B, H, T, d}), view(lses[i].data(), {B, H, T}));
        }
        std::vector<float> merged(size_t(B * H * T * d)), merged_lse(size_t(B * H * T));
        const TensorView sinks = with_sinks ? TensorView(view(attention.sinks.data(), {H})) : TensorView();
        const Status status = merge_states(states.data(), 4, view(merged.data(), {B, H, T, d}), view(merged_lse.data(), {B, H, T}), sinks);
        INFO(status.message());
        REQUIRE(status.ok());
        double worst = 0;
        for (size_t i = 0; i < merged.size(); i++) {
            worst = std::max(worst, std::abs(double(merged[i]) - out[i]));
        }
        CHECK(worst < 3e-6);
        for (size_t i = 0; i < merged_lse.size(); i++) {
            CHECK((std::isinf(lse[i]) ? merged_lse[i] == nothing : std::abs(double(merged_lse[i]) - lse[i]) < 1e-5));
        }
        // Into the first part, as a running result.
        CHECK(merge_states(states.data(), 4, view(outs[0].data(), {B, H, T, d}), view(lses[0].data(), {B, H, T}), sinks).ok());
        CHECK(outs[0] == merged);
        CHECK(lses[0] == merged_lse);
    }
}

TEST_CASE("merge: 16-bit parts, and a sink that came with one of them", "[runtime]") {
    const Attention attention(17, 6);
    const auto all = [](int64_t) { return int64_t(100); };
    std::vector<double> out, lse, part_out, part_lse;
    attention.answer(0, 17, true, all, &out, &lse);
    std::vector<std::vector<uint16_t>> outs;
    std::vector<std::vector<float>> lses;
    std::vector<State> states;
    for (int i = 0; i < 2; i++) {
        attention.answer(i * 9, i == 0 ? 9 : 17, i == 1, all, &part_out, &part_lse);
        outs.emplace_back();
        for (const double x : part_out) {
            outs.back().push_back(to_storage_bits(float(x), POLYHEAD_BF16));
        }
        lses.push_back(floats(part_lse));
    }
    for (size_t i = 0; i < 2; i++) {
        states.emplace_back(TensorView(outs[i].data(), DType::bf16, {B, H, T, d}), view(lses[i].data(), {B, H, T}));
    }
    std::vector<uint16_t> merged(size_t(B * H * T * d));
    REQUIRE(merge_states(states.data(), 2, MutableTensorView(merged.data(), DType::bf16, {B, H, T, d})).ok());
    double worst = 0;
    for (size_t i = 0; i < merged.size(); i++) {
        worst = std::max(worst, std::abs(double(from_storage_bits(merged[i], POLYHEAD_BF16)) - out[i]) / std::max(1.0, std::abs(out[i])));
    }
    CHECK(worst < 0x1p-7);
}

TEST_CASE("merge: what is refused", "[runtime]") {
    std::vector<float> out(size_t(B * H * T * d), 7.0f), lse(size_t(B * H * T), 7.0f), other(out), other_lse(lse);
    std::vector<State> states = {State(view(other.data(), {B, H, T, d}), view(other_lse.data(), {B, H, T}))};
    MutableTensorView to = view(out.data(), {B, H, T, d}), to_lse = view(lse.data(), {B, H, T});
    TensorView sinks;
    int32_t count = 1;
    const auto refused = [&](const std::string &message) {
        CHECK(std::string(merge_states(states.data(), count, to, to_lse, sinks).message()) == message);
        CHECK(out == std::vector<float>(out.size(), 7.0f));
    };
    SECTION("no parts") {
        count = 0;
        refused("num_parts: value 0, expected at least 1");
    }
    SECTION("another shape") {
        states[0].out.shape[2] = 3;
        refused("out of a part: extent 3 of dimension 2, expected 4 as in out");
    }
    SECTION("another type") {
        states[0].out.dtype = POLYHEAD_F16;
        refused("out of a part: dtype f16, expected f32");
    }
    SECTION("no lse") {
        states[0].lse = polyhead_tensor{};
        refused("lse of a part: missing, expected a tensor of rank 3");
    }
    SECTION("sinks of another number of heads") {
        sinks = view(lse.data(), {2});
        refused("sinks: extent 2 of dimension 0, expected 3 as in out");
    }
    SECTION("an output in another place of a part") {
        states[0].out = view(out.data(), {B, H, T, d});
        states[0].out.stride[0] = d; // the same memory in another order
        refused("out: shares memory with out of a part, expected memory of its own, or the same elements");
    }
    SECTION("one memory for both outputs") {
        to_lse = view(out.data(), {B, H, T});
        refused("lse: shares memory with out, expected memory of its own");
    }
}

TEST_CASE("rotate: both kinds, in part and in place", "[runtime]") {
    constexpr int64_t positions = 9, pairs = 20;
    std::vector<float> cos, sin, input(size_t(B * H * T * d));
    Random random(8);
    for (int64_t i = 0; i < positions * pairs; i++) {
        const float angle = float(i / pairs) / float(1 + i % pairs);
        cos.push_back(std::cos(angle));
        sin.push_back(std::sin(angle));
    }
    for (float &x : input) {
        x = random.normal();
    }
    const std::vector<int32_t> first = {5, 2}, each = {8, 0, 3, 3, 1, 7, 6, 5};
    for (const auto &[interleaved, trailing] : {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
        const int64_t begin = trailing ? d - 2 * pairs : 0;
        for (const int which : {0, 1, 2}) { // positions: none, of the first token, of each
            Rotation rotation;
            rotation.cos = view(cos.data(), {positions, pairs});
            rotation.sin = view(sin.data(), {positions, pairs});
            rotation.interleaved = interleaved;
            rotation.trailing = trailing;
            rotation.positions = which == 0   ? TensorView()
                                 : which == 1 ? TensorView(view(first.data(), {B}))
                                              : TensorView(view(each.data(), {B, T}));
            std::vector<float> out(input.size()), in_place(input);
            REQUIRE(rotate(view(input.data(), {B, H, T, d}), rotation, view(out.data(), {B, H, T, d})).ok());
            REQUIRE(rotate(view(in_place.data(), {B, H, T, d}), rotation, view(in_place.data(), {B, H, T, d})).ok());
            CHECK(in_place == out);
            double worst = 0;
            for (int64_t row = 0; row < B * H * T; row++) {
                const int64_t b = row / (H * T), t = row % T,
                              p = which == 0   ? t
                                  : which == 1 ? first[size_t(b)] + t
                                               : each[size_t(b * T + t)];
                for (int64_t entry = 0; entry < d; entry++) {
                    const int64_t i = trailing && entry < begin ? d : entry - begin; // d: not rotated
                    const int64_t pair = interleaved ? i / 2 : i % pairs;
                    const bool is_second = interleaved ? i % 2 != 0 : i >= pairs, rotated = i < 2 * pairs;
                    const double x = double(input[size_t(row * d + begin + (interleaved ? 2 * pair : pair) % (2 * pairs))]),
                                 y = double(input[size_t(row * d + begin + (interleaved ? 2 * pair + 1 : pair + pairs) % (2 * pairs))]),
                                 c = double(cos[size_t(p * pairs + pair % pairs)]), s = double(sin[size_t(p * pairs + pair % pairs)]);
                    const double expected = !rotated ? double(input[size_t(row * d + entry)]) : is_second ? y * c + x * s : x * c - y * s;
                    worst = std::max(worst, std::abs(double(out[size_t(row * d + entry)]) - expected));
                }
            }
            CHECK(worst < 1e-6);
        }
    }
    Rotation wrong;
    wrong.cos = view(cos.data(), {3, pairs});
    wrong.sin = view(sin.data(), {3, pairs});
    std::vector<float> out(input.size(), 7.0f);
    CHECK(std::string(rotate(view(input.data(), {B, H, T, d}), wrong, view(out.data(), {B, H, T, d})).message()) ==
          "positions: token 3 of batch row 0 is at position 3, expected 0 to 2 (rows of rope_cos)");
    CHECK(out == std::vector<float>(out.size(), 7.0f));
}
