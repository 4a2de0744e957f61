// Norms of new keys and values against float64, and what is refused of them.
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include <polyhead/cache.h>

#include "instruments/calls/layouts.h"
#include "instruments/calls/random.h"
#include "instruments/reference/half.h"
#include "runtime_calls.h"
#include "support/catch.h"

namespace polyhead::test {
namespace head_norm {

constexpr double epsilon = 1e-5;

// A row by the definition, in float64.
std::vector<double> normalized(const float *row, int64_t width, int kind, const float *weight, const float *bias) {
    std::vector<double> out(row, row + width);
    double mean = 0, squares = 0;
    for (const double x : out) {
        mean += kind == POLYHEAD_LAYER_NORM ? x / double(width) : 0;
    }
    for (double &x : out) {
        x -= mean;
        squares += x * x / double(width);
    }
    for (size_t i = 0; i < out.size(); i++) {
        const double factor = (kind == POLYHEAD_RMS_NORM_PLUS_ONE ? 1.0 : 0.0) + (weight                               ? double(weight[i])
                                                                                  : kind == POLYHEAD_RMS_NORM_PLUS_ONE ? 0.0
                                                                                                                       : 1.0);
        out[i] = out[i] / std::sqrt(squares + double(float(epsilon))) * factor + (bias ? double(bias[i]) : 0.0);
    }
    return out;
}

// Four tokens of two heads, for a cache of f32 without pages.
struct Call {
    static constexpr int64_t heads = 2, tokens = 4;
    int64_t width;
    std::vector<float> key, value, new_key, new_value, weight, bias;
    std::vector<int32_t> lengths = {1};
    polyhead_cache cache = polyhead_cache_of({}, {}, {});
    polyhead_new_keys keys = polyhead_new_keys_of();

    explicit Call(int64_t width_ = 4) : width(width_) {
        Random random(static_cast<uint64_t>(width));
        const auto numbers = [&](int64_t count) {
            std::vector<float> made;
            for (int64_t i = 0; i < count; i++) {
                made.push_back(static_cast<float>(random.normal()));
            }
            return made;
        };
        key = value = std::vector<float>(size_t(heads * 6 * width), untouched);
        new_key = numbers(heads * tokens * width);
        new_value = numbers(heads * tokens * width);
        weight = numbers(width);
        bias = numbers(width);
        cache.key = view(key.data(), {1, heads, 6, width});
        cache.value = view(value.data(), {1, heads, 6, width});
        keys.key = view(const_cast<const float *>(new_key.data()), {1, heads, tokens, width});
        keys.value = view(const_cast<const float *>(new_value.data()), {1, heads, tokens, width});
        keys.lengths = view(const_cast<const int32_t *>(lengths.data()), {1});
    }
    void normalize(int32_t kind) {
        keys.key_norm = kind;
        keys.norm_epsilon = static_cast<float>(epsilon);
    }
    TensorView entries(const std::vector<float> &of) const { return view(of.data(), {width}); }
    const float *at(const std::vector<float> &cached, int64_t h, int64_t t) const { return &cached[size_t((h * 6 + 1 + t) * width)]; }
    // Every row that was written, and what it came from.
    void check(const std::vector<float> &written, const std::vector<float> &from, int kind, const float *w, const float *b) const {
        std::string wrong; // one entry of them
        for (int64_t h = 0; h < heads; h++) {
            for (int64_t t = 0; t < tokens; t++) {
                const std::vector<double> right = normalized(&from[size_t((h * tokens + t) * width)], width, kind, w, b);
                for (int64_t i = 0; i < width; i++) {
                    const double expected = right[size_t(i)], found = at(written, h, t)[i];
                    const double bound = 3e-7 * (std::abs(expected) + (b ? std::abs(double(b[i])) : 0.0)) + 1e-30;
                    if (!(std::abs(found - expected) <= bound)) {
                        wrong = "entry " + std::to_string(i) + " of token " + std::to_string(t) + ", head " + std::to_string(h) + ": " +
                                std::to_string(found) + ", expected " + std::to_string(expected);
                    }
                }
            }
        }
        CHECK(wrong == "");
    }
    void refused(polyhead_code code, const std::string &message) {
        check_refused(polyhead_append(&cache, &keys), code, message, {&key, &value});
    }
};

} // namespace head_norm

using head_norm::Call;

TEST_CASE("head norm: every kind against float64", "[runtime]") {
    for (const int64_t width : {1, 2, 3, 4, 64, 127, 576}) {
        for (const int kind : {POLYHEAD_RMS_NORM, POLYHEAD_RMS_NORM_PLUS_ONE, POLYHEAD_LAYER_NORM}) {
            for (const bool weighted : {false, true}) {
                for (const bool biased : {false, true}) {
                    if (biased && kind != POLYHEAD_LAYER_NORM) {
                        continue;
                    }
                    CAPTURE(width, kind, weighted, biased);
                    Call call(width);
                    call.normalize(kind);
                    call.keys.key_norm_weight = weighted ? call.entries(call.weight) : TensorView();
                    call.keys.key_norm_bias = biased ? call.entries(call.bias) : TensorView();
                    call.keys.value_norm = 1;
                    REQUIRE(std::string(polyhead_append(&call.cache, &call.keys).message).empty());
                    // The mean of two numbers of different signs may lose digits, but not in sums of double.
                    call.check(call.key, call.new_key, kind, weighted ? call.weight.data() : nullptr, biased ? call.bias.data() : nullptr);
                    call.check(call.value, call.new_value, POLYHEAD_RMS_NORM, nullptr, nullptr);
                }
            }
        }
    }
}

TEST_CASE("head norm: values alone, and keys alone", "[runtime]") {
    Call values, all_keys;
    values.keys.value_norm = 1;
    values.keys.norm_epsilon = static_cast<float>(head_norm::epsilon);
    REQUIRE(polyhead_append(&values.cache, &values.keys).code == POLYHEAD_OK);
    values.check(values.value, values.new_value, POLYHEAD_RMS_NORM, nullptr, nullptr);
    CHECK(std::equal(values.new_key.begin(), values.new_key.begin() + 16, values.at(values.key, 0, 0)));
    all_keys.normalize(POLYHEAD_RMS_NORM);
    REQUIRE(polyhead_append(&all_keys.cache, &all_keys.keys).code == POLYHEAD_OK);
    all_keys.check(all_keys.key, all_keys.new_key, POLYHEAD_RMS_NORM, nullptr, nullptr);
    CHECK(std::equal(all_keys.new_value.begin(), all_keys.new_value.begin() + 16, all_keys.at(all_keys.value, 0, 0)));
}

TEST_CASE("head norm: rows of zeros, of one number, of the largest and of the smallest floats", "[runtime]") {
    Call call(8);
    const float largest = std::numeric_limits<float>::max(), smallest = std::numeric_limits<float>::denorm_min();
    for (int64_t i = 0; i < 8; i++) {
        const float sign = i % 3 == 0 ? 1.0f : -0.5f;
        call.new_key[size_t(i)] = 0.0f;
        call.new_key[size_t(8 + i)] = 1234.5f;
        call.new_key[size_t(16 + i)] = sign * largest;
        call.new_key[size_t(24 + i)] = sign * smallest * 64;
    }
    for (const int kind : {POLYHEAD_RMS_NORM, POLYHEAD_RMS_NORM_PLUS_ONE, POLYHEAD_LAYER_NORM}) {
        CAPTURE(kind);
        call.normalize(kind);
        call.keys.key_norm_weight = call.entries(call.weight);
        call.keys.key_norm_bias = kind == POLYHEAD_LAYER_NORM ? call.entries(call.bias) : TensorView();
        REQUIRE(polyhead_append(&call.cache, &call.keys).code == POLYHEAD_OK);
        call.check(call.key, call.new_key, kind, call.weight.data(), kind == POLYHEAD_LAYER_NORM ? call.bias.data() : nullptr);
        for (int64_t i = 0; i < 8; i++) {
            CHECK(call.at(call.key, 0, 0)[i] == (kind == POLYHEAD_LAYER_NORM ? call.bias[size_t(i)] : 0.0f));
        }
    }
    call.keys.norm_epsilon = smallest;
    call.keys.key_norm_bias = TensorView();
    REQUIRE(polyhead_append(&call.cache, &call.keys).code == POLYHEAD_OK);
    CHECK(call.at(call.key, 0, 0)[0] == 0.0f);
}

TEST_CASE("head norm: weights of every type", "[runtime]") {
    for (const DType dtype : {DType::f16, DType::bf16}) {
        Call call(64);
        std::vector<uint16_t> weight, bias;
        for (size_t i = 0; i < 64; i++) {
            weight.push_back(to_storage_bits(call.weight[i], int32_t(dtype)));
            bias.push_back(to_storage_bits(call.bias[i], int32_t(dtype)));
            call.weight[i] = from_storage_bits(weight[i], int32_t(dtype));
            call.bias[i] = from_storage_bits(bias[i], int32_t(dtype));
        }
        call.normalize(POLYHEAD_LAYER_NORM);
        call.keys.key_norm_weight = TensorView(weight.data(), dtype, {64});
        call.keys.key_norm_bias = TensorView(bias.data(), dtype, {64});
        REQUIRE(std::string(polyhead_append(&call.cache, &call.keys).message).empty());
        call.check(call.key, call.new_key, POLYHEAD_LAYER_NORM, call.weight.data(), call.bias.data());
    }
}

TEST_CASE("head norm: nothing is rounded between norm, rotation and what is stored", "[runtime]") {
    constexpr int64_t width = 64, rows = Call::heads * Call::tokens;
    Call apart(width), together(width);
    std::vector<float> cos(8 * width / 2, 0.6f), sin(8 * width / 2, 0.8f), rotated(size_t(rows * width));
    const polyhead_rotation rotation = {POLYHEAD_ROPE_INTERLEAVED, view(const_cast<const float *>(cos.data()), {8, width / 2}),
                                        view(const_cast<const float *>(sin.data()), {8, width / 2}), polyhead_tensor{}};
    apart.normalize(POLYHEAD_RMS_NORM_PLUS_ONE);
    apart.keys.key_norm_weight = apart.entries(apart.weight);
    REQUIRE(polyhead_append(&apart.cache, &apart.keys).code == POLYHEAD_OK);
    polyhead_tensor written = apart.cache.key; // the rows behind the first one
    written.offset = width;
    written.shape[2] = Call::tokens;
    const polyhead_tensor out = view(rotated.data(), {1, Call::heads, Call::tokens, width});
    REQUIRE(polyhead_rotate(&written, &rotation, &out).code == POLYHEAD_OK);
    std::vector<uint16_t> stored(size_t(Call::heads * 6 * width));
    together.normalize(POLYHEAD_RMS_NORM_PLUS_ONE);
    together.keys.key_norm_weight = together.entries(together.weight);
    together.keys.rotation = rotation;
    together.cache.key = MutableTensorView(stored.data(), DType::bf16, {1, Call::heads, 6, width});
    together.cache.value = together.keys.value = polyhead_tensor{};
    REQUIRE(std::string(polyhead_append(&together.cache, &together.keys).message).empty());
    for (int64_t i = 0; i < rows * width; i++) {
        const int64_t row = i / width / Call::tokens * 6 + 1 + i / width % Call::tokens;
        REQUIRE(stored[size_t(row * width + i % width)] == to_storage_bits(rotated[size_t(i)], POLYHEAD_BF16));
    }
}

TEST_CASE("head norm: a cache of int8", "[runtime]") {
    Call call(64);
    std::vector<int8_t> rows(size_t(Call::heads * 6 * 64));
    std::vector<float> scales(size_t(Call::heads * 6));
    call.normalize(POLYHEAD_RMS_NORM);
    call.keys.key_norm_weight = call.entries(call.weight);
    call.cache.key = view(rows.data(), {1, Call::heads, 6, 64});
    call.cache.key_scales = view(scales.data(), {1, Call::heads, 6, 1});
    call.cache.value = call.keys.value = polyhead_tensor{};
    REQUIRE(std::string(polyhead_append(&call.cache, &call.keys).message).empty());
    for (int64_t t = 0; t < Call::tokens; t++) {
        const std::vector<double> right =
            head_norm::normalized(&call.new_key[size_t(t * 64)], 64, POLYHEAD_RMS_NORM, call.weight.data(), nullptr);
        for (int64_t i = 0; i < 64; i++) {
            const double scale = scales[size_t(1 + t)];
            CHECK(std::abs(rows[size_t((1 + t) * 64 + i)] * scale - right[size_t(i)]) <= 0.5001 * scale);
        }
    }
    const auto message = [&] { return std::string(polyhead_append(&call.cache, &call.keys).message); };
    call.weight[3] = std::numeric_limits<float>::infinity();
    const std::string expected = ", expected finite numbers for a cache of int8";
    CHECK(message().find(" of token 0, head 0, batch row 0 after its norm" + expected) != std::string::npos);
    std::vector<float> table(8, 1.0f);
    call.keys.rotation = {POLYHEAD_ROPE_HALF_SPLIT, view(const_cast<const float *>(table.data()), {8, 1}),
                          view(const_cast<const float *>(table.data()), {8, 1}), polyhead_tensor{}};
    CHECK(message().find(" after its norm and its rotation" + expected) != std::string::npos);
}

TEST_CASE("head norm: what is refused", "[runtime]") {
    Call bad;
    SECTION("kinds") {
        for (const int32_t kind : {-1, 4}) {
            bad.normalize(kind);
            bad.refused(POLYHEAD_BAD_VALUE,
                        "key_norm: value " + std::to_string(kind) + ", expected 0 (none), 1 (rms), 2 (rms_plus_one) or 3 (layer)");
        }
        bad.normalize(0);
        bad.keys.value_norm = 2;
        bad.refused(POLYHEAD_BAD_VALUE, "value_norm: value 2, expected 0 or 1");
    }
    SECTION("epsilon") {
        bad.normalize(POLYHEAD_RMS_NORM);
        for (const auto &[value, text] : {std::pair<float, std::string>{0.0f, "0"}, {-1.0f, "-1"}, {NAN, "nan"}, {INFINITY, "inf"}}) {
            bad.keys.norm_epsilon = value;
            bad.refused(POLYHEAD_BAD_VALUE, "norm_epsilon: value " + text + ", expected a finite number above 0");
        }
        bad.normalize(0);
        bad.keys.norm_epsilon = 0.5f;
        bad.refused(POLYHEAD_BAD_VALUE, "norm_epsilon: value 0.5, expected 0, because nothing is normalized");
    }
    SECTION("tensors of no norm") {
        bad.keys.key_norm_weight = bad.entries(bad.weight);
        bad.refused(POLYHEAD_WRONG_OPERATION, "key_norm_weight: given, expected none, because key_norm is 0 (none)");
        bad.keys.key_norm_weight = TensorView();
        bad.keys.key_norm_bias = bad.entries(bad.bias);
        bad.normalize(POLYHEAD_RMS_NORM);
        bad.refused(POLYHEAD_WRONG_OPERATION, "key_norm_bias: given, expected none, because key_norm is not 3 (layer)");
    }
    SECTION("weights of another width and type") {
        bad.normalize(POLYHEAD_LAYER_NORM);
        bad.keys.key_norm_bias = bad.entries(bad.bias);
        bad.keys.key_norm_weight = view(const_cast<const float *>(bad.weight.data()), {3});
        bad.refused(POLYHEAD_WRONG_SHAPE, "key_norm_weight: extent 3 of dimension 0, expected 4");
        bad.keys.key_norm_weight = bad.entries(bad.weight);
        bad.keys.key_norm_bias.dtype = POLYHEAD_I32;
        bad.refused(POLYHEAD_WRONG_DTYPE, "key_norm_bias: dtype i32, expected f32, f16 or bf16");
    }
    SECTION("a norm of values that there are not") {
        bad.cache.value = bad.keys.value = polyhead_tensor{};
        bad.keys.value_norm = 1;
        bad.refused(POLYHEAD_WRONG_OPERATION, "value_norm: value 1, expected 0, because the cache has no value");
    }
    SECTION("weights in the cache") {
        bad.normalize(POLYHEAD_LAYER_NORM);
        bad.keys.key_norm_weight = view(const_cast<const float *>(bad.value.data()), {4});
        bad.refused(POLYHEAD_ALIASED, "cache value: shares memory with key_norm_weight, expected memory of its own");
        bad.keys.key_norm_weight = TensorView();
        bad.keys.key_norm_bias = view(const_cast<const float *>(bad.key.data()), {4});
        bad.refused(POLYHEAD_ALIASED, "cache key: shares memory with key_norm_bias, expected memory of its own");
    }
}

TEST_CASE("head norm: new keys of programs that do not know it", "[runtime]") {
    Call call;
    call.keys.size = offsetof(polyhead_new_keys, cu_seqlens);
    call.keys.cu_seqlens = call.entries(call.weight); // memory of something else
    call.keys.key_norm = 77;
    call.keys.norm_epsilon = NAN;
    REQUIRE(std::string(polyhead_append(&call.cache, &call.keys).message).empty());
    CHECK(std::equal(call.new_key.begin(), call.new_key.begin() + 16, call.at(call.key, 0, 0)));
    call.keys.size = offsetof(polyhead_new_keys, key_norm); // packed tokens, and no norm
    const std::vector<int32_t> begins = {0, 4};
    call.keys.cu_seqlens = view(begins.data(), {2});
    REQUIRE(std::string(polyhead_append(&call.cache, &call.keys).message).empty());
}

TEST_CASE("normalize: the numbers of append, in place, in every type and on several threads", "[runtime]") {
    constexpr int64_t width = 64, rows = Call::heads * Call::tokens;
    for (const int kind : {POLYHEAD_RMS_NORM, POLYHEAD_RMS_NORM_PLUS_ONE, POLYHEAD_LAYER_NORM}) {
        Call call(width);
        call.normalize(kind);
        call.keys.key_norm_weight = call.entries(call.weight);
        REQUIRE(polyhead_append(&call.cache, &call.keys).code == POLYHEAD_OK);
        std::vector<float> out = call.new_key;
        const MutableTensorView inout = view(out.data(), {1, Call::heads, Call::tokens, width});
        REQUIRE(
            std::string(normalize(inout, {polyhead_norm(kind), float(head_norm::epsilon), call.entries(call.weight), {}}, inout).message())
                .empty());
        for (int64_t i = 0; i < rows; i++) {
            CHECK(
                std::equal(out.begin() + i * width, out.begin() + (i + 1) * width, call.at(call.key, i / Call::tokens, i % Call::tokens)));
        }
        for (const DType dtype : {DType::f16, DType::bf16}) {
            std::vector<uint16_t> half(size_t(rows * width)), expected;
            std::vector<float> exact(half.size());
            for (size_t i = 0; i < half.size(); i++) {
                half[i] = to_storage_bits(call.new_key[i], int32_t(dtype));
                exact[i] = from_storage_bits(half[i], int32_t(dtype));
            }
            const HeadNorm norm{polyhead_norm(kind), float(head_norm::epsilon), {}, {}};
            const MutableTensorView floats = view(exact.data(), {rows, 1, 1, width});
            REQUIRE(normalize(floats, norm, floats).ok());
            const MutableTensorView stored(half.data(), dtype, {1, 1, rows, width});
            REQUIRE(normalize(stored, norm, stored).ok());
            for (size_t i = 0; i < half.size(); i++) {
                REQUIRE(half[i] == to_storage_bits(exact[i], int32_t(dtype))); // rounded once
            }
        }
    }
    std::vector<float> many(64 * 4 * 64 * 8), expected = many;
    Random random(5);
    for (size_t i = 0; i < many.size(); i++) {
        many[i] = expected[i] = static_cast<float>(random.normal());
    }
    const HeadNorm norm{POLYHEAD_LAYER_NORM, 1e-3f, {}, {}};
    for (auto *one : {&many, &expected}) {
        set_num_threads(one == &many ? 4 : 1);
        const MutableTensorView inout = view(one->data(), {8, 4, 64, 64});
        REQUIRE(normalize(inout, norm, inout).ok());
    }
    set_num_threads(0);
    CHECK(many == expected);
}

TEST_CASE("normalize: what is refused", "[runtime]") {
    std::vector<float> rows(2 * 4, 2.0f), out(8, untouched), weight(5, 1.0f);
    const polyhead_tensor input = view(const_cast<const float *>(rows.data()), {1, 1, 2, 4});
    polyhead_tensor to = view(out.data(), {1, 1, 2, 4});
    polyhead_head_norm norm = polyhead_head_norm_of(POLYHEAD_RMS_NORM, 1e-6f);
    const auto refused = [&](polyhead_code code, const std::string &message) {
        const polyhead_status status = polyhead_normalize(&input, &norm, &to);
        CHECK(status.code == code);
        CHECK(std::string(status.message) == message);
        CHECK(out == std::vector<float>(8, untouched));
    };
    SECTION("a norm that there is not, and one without epsilon") {
        norm.norm = 4;
        refused(POLYHEAD_BAD_VALUE, "norm: value 4, expected 0 (none), 1 (rms), 2 (rms_plus_one) or 3 (layer)");
        norm = polyhead_head_norm_of(POLYHEAD_RMS_NORM, 0);
        refused(POLYHEAD_BAD_VALUE, "epsilon: value 0, expected a finite number above 0");
        norm = polyhead_head_norm_of(POLYHEAD_NO_NORM, 1);
        refused(POLYHEAD_BAD_VALUE, "epsilon: value 1, expected 0, because nothing is normalized");
    }
    SECTION("weights") {
        norm.weight = view(const_cast<const float *>(weight.data()), {5});
        refused(POLYHEAD_WRONG_SHAPE, "weight: extent 5 of dimension 0, expected 4");
        norm.weight = view(const_cast<const float *>(out.data()), {4});
        refused(POLYHEAD_ALIASED, "out: shares memory with weight, expected memory of its own, or the same elements");
        norm.weight = polyhead_tensor{};
        norm.bias = view(const_cast<const float *>(weight.data()), {4});
        refused(POLYHEAD_WRONG_OPERATION, "bias: given, expected none, because norm is not 3 (layer)");
        norm.norm = POLYHEAD_LAYER_NORM;
        norm.bias = view(const_cast<const float *>(out.data()), {4});
        refused(POLYHEAD_ALIASED, "out: shares memory with bias, expected memory of its own, or the same elements");
    }
    SECTION("out") {
        to.shape[3] = 3;
        refused(POLYHEAD_WRONG_SHAPE, "out: extent 3 of dimension 3, expected 4 as in input");
        to = view(rows.data() + 1, {1, 1, 1, 4});
        to.shape[2] = 2;
        to.stride[2] = 3;
        CHECK(polyhead_normalize(&input, &norm, &to).code != POLYHEAD_OK);
        CHECK(rows == std::vector<float>(8, 2.0f));
    }
    SECTION("structs") {
        norm.reserved = 1;
        refused(POLYHEAD_UNSUPPORTED, "norm: reserved 1, expected 0");
        norm.size -= 8;
        CHECK(polyhead_normalize(&input, &norm, &to).code == POLYHEAD_UNSUPPORTED);
        CHECK(std::string(polyhead_normalize(&input, nullptr, &to).message) == "norm: null pointer, expected a struct");
    }
    SECTION("none copies") {
        norm = polyhead_head_norm_of(POLYHEAD_NO_NORM, 0);
        CHECK(polyhead_normalize(&input, &norm, &to).code == POLYHEAD_OK);
        CHECK(out == rows);
    }
}

} // namespace polyhead::test
