// A cache of int8: how append() makes integers and scales, and what is refused.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <polyhead/cache.h>

#include "support/catch.h"

using namespace polyhead;

namespace {

// One head of 64 entries, two tokens for one batch row of four.
struct Append {
    static constexpr int64_t d = 64, capacity = 4, tokens = 2;
    int64_t scales; // of a row
    std::vector<int8_t> key = std::vector<int8_t>(capacity * d, 77), value = key;
    std::vector<float> key_scales, value_scales, new_key = std::vector<float>(tokens * d), new_value = new_key;
    std::vector<float> cos = std::vector<float>(capacity, 1.0f), sin = std::vector<float>(capacity, 0.0f);
    std::vector<int32_t> lengths = {1};
    Cache cache;
    NewKeys keys;

    explicit Append(int64_t scales_) : scales(scales_), key_scales(size_t(capacity * scales), -7.0f), value_scales(key_scales) {
        for (size_t i = 0; i < new_key.size(); i++) {
            new_key[i] = std::sin(float(i)) * float(1 + i % 5);
            new_value[i] = 1e-3f * std::cos(float(3 * i));
        }
        cache.key = view(key.data(), {1, 1, capacity, d});
        cache.value = view(value.data(), {1, 1, capacity, d});
        cache.key_scales = view(key_scales.data(), {1, 1, capacity, scales});
        cache.value_scales = view(value_scales.data(), {1, 1, capacity, scales});
        keys.key = view(const_cast<const float *>(new_key.data()), {1, 1, tokens, d});
        keys.value = view(const_cast<const float *>(new_value.data()), {1, 1, tokens, d});
        keys.lengths = view(const_cast<const int32_t *>(lengths.data()), {1});
    }
    void rotate() {
        keys.rotation.cos = view(const_cast<const float *>(cos.data()), {capacity, 1});
        keys.rotation.sin = view(const_cast<const float *>(sin.data()), {capacity, 1});
    }
    void refused(polyhead_code code, const std::string &message) {
        const Status status = append(cache, keys);
        CHECK(status.code() == code);
        CHECK(std::string(status.message()) == message);
        untouched(0, capacity);
    }
    void untouched(int64_t begin, int64_t end) const {
        for (int64_t i = begin * d; i < end * d; i++) {
            REQUIRE((key[size_t(i)] == 77 && value[size_t(i)] == 77));
        }
        for (int64_t i = begin * scales; i < end * scales; i++) {
            REQUIRE((key_scales[size_t(i)] == -7.0f && value_scales[size_t(i)] == -7.0f));
        }
    }
};

// Entries of token t against their definition: the largest entry that shares the scale is 127 steps.
void check_row(const Append &call, const std::vector<float> &from, int64_t t, const std::vector<int8_t> &row,
               const std::vector<float> &scale) {
    const int64_t d = Append::d, shared = d / call.scales, at = t + call.lengths[0];
    for (int64_t s = 0; s < call.scales; s++) {
        float largest = 0;
        for (int64_t i = s * shared; i < (s + 1) * shared; i++) {
            largest = std::max(largest, std::abs(from[size_t(t * d + i)]));
        }
        const float step = scale[size_t(at * call.scales + s)];
        CHECK(step == largest / 127.0f);
        for (int64_t i = s * shared; i < (s + 1) * shared; i++) {
            const float steps = step > 0 ? from[size_t(t * d + i)] / step : 0.0f;
            CHECK(float(row[size_t(at * d + i)]) == std::nearbyint(steps));
        }
    }
}

} // namespace

TEST_CASE("int8 cache: integers and scales by their definition", "[runtime]") {
    Append call(GENERATE(1, 1, 2));
    SECTION("ordinary numbers") {}
    SECTION("rows of zeros have scale 0") {
        std::fill(call.new_key.begin(), call.new_key.begin() + 64, 0.0f);
        std::fill(call.new_value.begin(), call.new_value.end(), -0.0f);
    }
    SECTION("the largest and the smallest floats") {
        for (size_t i = 0; i < call.new_key.size(); i++) {
            call.new_key[i] = (i % 2 == 0 ? 1.0f : -0.25f) * std::numeric_limits<float>::max();
            call.new_value[i] = (i % 3 == 0 ? 1.0f : 0.5f) * 1e-30f;
        }
    }
    SECTION("ties go to the even integer") {
        for (size_t i = 0; i < call.new_key.size(); i++) {
            call.new_key[i] = i % 32 == 0 ? 127.0f : float(i % 32) + 0.5f;
        }
    }
    SECTION("a rotation by nothing changes nothing") {
        call.rotate();
    }
    const Status status = append(call.cache, call.keys);
    INFO(status.message());
    REQUIRE(status.ok());
    for (int64_t t = 0; t < Append::tokens; t++) {
        check_row(call, call.new_key, t, call.key, call.key_scales);
        check_row(call, call.new_value, t, call.value, call.value_scales);
    }
    call.untouched(0, 1);
    call.untouched(3, 4);
}

TEST_CASE("int8 cache: entries below the smallest scale are 0 or small, never undefined", "[runtime]") {
    Append call(1);
    std::fill(call.new_key.begin(), call.new_key.end(), 1e-44f); // a scale of 1e-44 / 127 is 0
    std::fill(call.new_value.begin(), call.new_value.end(), 3e-43f);
    REQUIRE(append(call.cache, call.keys).ok());
    CHECK(call.key_scales[1] == 0.0f);
    CHECK(call.key[64] == 0);
    CHECK(std::abs(float(call.value[64]) * call.value_scales[1] - 3e-43f) <= 2e-43f);
}

TEST_CASE("int8 cache: what is refused", "[runtime]") {
    Append bad(1);
    SECTION("NaN") {
        bad.new_key[70] = std::numeric_limits<float>::quiet_NaN();
        bad.refused(POLYHEAD_BAD_VALUE, "key: value nan of token 1, head 0, batch row 0, expected finite numbers for a cache of int8");
    }
    SECTION("infinity") {
        bad.new_value[3] = -std::numeric_limits<float>::infinity();
        bad.refused(POLYHEAD_BAD_VALUE, "value: value -inf of token 0, head 0, batch row 0, expected finite numbers for a cache of int8");
    }
    SECTION("a rotation that is not finite") {
        bad.rotate();
        bad.cos[2] = std::numeric_limits<float>::infinity();
        bad.refused(POLYHEAD_BAD_VALUE,
                    "key: value inf of token 1, head 0, batch row 0 after its rotation, expected finite numbers for a cache of int8");
    }
    SECTION("but not in tokens that are not appended") {
        const std::vector<int32_t> one = {1};
        bad.keys.counts = view(one.data(), {1});
        bad.new_key[70] = std::numeric_limits<float>::quiet_NaN();
        CHECK(append(bad.cache, bad.keys).ok());
    }
    SECTION("no scales") {
        bad.cache.value_scales = MutableTensorView();
        bad.refused(POLYHEAD_NULL_POINTER, "value_scales: missing, expected a tensor of rank 4");
    }
    SECTION("scales of floats") {
        std::vector<float> floats(size_t(Append::capacity * Append::d), 7.0f);
        bad.cache.key = bad.cache.value = view(floats.data(), {1, 1, Append::capacity, Append::d});
        bad.refused(POLYHEAD_WRONG_OPERATION, "key_scales: given, expected none, because the cache has no key of int8");
    }
    SECTION("scales of another number of keys") {
        bad.cache.key_scales.shape[2] = 3;
        bad.refused(POLYHEAD_WRONG_SHAPE, "key_scales: extent 3 of dimension 2, expected 4 as in cache");
    }
    SECTION("scales of 16 entries") {
        std::vector<float> more(size_t(Append::capacity * 4));
        bad.cache.key_scales = view(more.data(), {1, 1, Append::capacity, 4});
        bad.refused(POLYHEAD_WRONG_SHAPE, "key_scales: extent 4 of dimension 3, expected 1, or 64 entries of a row divided by 32 or 64");
    }
    SECTION("new keys of integers") {
        bad.keys.key.dtype = POLYHEAD_I8;
        bad.refused(POLYHEAD_WRONG_DTYPE, "key: dtype i8, expected f32, f16 or bf16");
    }
    SECTION("scales that are new keys") {
        bad.keys.key = view(const_cast<const float *>(bad.key_scales.data()), {1, 1, 0, Append::d});
        bad.keys.value = view(const_cast<const float *>(bad.new_value.data()), {1, 1, 0, Append::d});
        CHECK(append(bad.cache, bad.keys).ok()); // no token
        bad.keys.lengths = view(reinterpret_cast<const int32_t *>(bad.key_scales.data()), {1});
        bad.keys.key = view(const_cast<const float *>(bad.new_key.data()), {1, 1, 0, Append::d});
        bad.key_scales[0] = 0.0f;
        CHECK(std::string(append(bad.cache, bad.keys).message()) == "key_scales: shares memory with lengths, expected memory of its own");
    }
}
