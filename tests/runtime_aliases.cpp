// Outputs and other tensors in the same memory: refused wherever they share an element, and accepted wherever strides show that they share
// none. Every pair is compared with what looking at each byte says.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <polyhead/cache.h>

#include "../runtime/rules/shared_elements.h"
#include "../runtime/status.h"
#include "instruments/calls/random.h"
#include "runtime_calls.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// The addresses of all bytes of a tensor.
std::set<const char *> bytes_of(const polyhead_tensor &t) {
    std::set<const char *> bytes;
    const int element = contract::dtype_bytes(t.dtype);
    int64_t elements = 1;
    for (int i = 0; i < t.rank; ++i) {
        elements *= t.shape[i];
    }
    for (int64_t n = 0; n < elements; ++n) {
        int64_t rest = n, offset = t.offset;
        for (int i = t.rank - 1; i >= 0; --i) {
            offset += t.shape[i] > 1 ? rest % t.shape[i] * t.stride[i] : 0;
            rest /= t.shape[i];
        }
        for (int i = 0; i < element; ++i) {
            bytes.insert(static_cast<const char *>(t.data) + offset * element + i);
        }
    }
    return bytes;
}

bool share_a_byte(const polyhead_tensor &a, const polyhead_tensor &b) {
    const std::set<const char *> of_a = bytes_of(a), of_b = bytes_of(b);
    return std::any_of(of_a.begin(), of_a.end(), [&](const char *byte) { return of_b.count(byte) != 0; });
}

polyhead_tensor tensor(float *data, std::initializer_list<int64_t> shape, std::initializer_list<int64_t> stride, int64_t offset = 0) {
    polyhead_tensor t = view(data, shape, stride);
    t.offset = offset;
    return t;
}

} // namespace

TEST_CASE("shared elements: layouts that people use", "[runtime]") {
    std::vector<float> memory(4096);
    float *const m = memory.data();
    struct Pair {
        const char *what;
        polyhead_tensor a, b;
        bool apart;
    };
    const Pair pairs[] = {
        {"one behind the other", tensor(m, {2, 3, 4, 8}, {96, 32, 8, 1}), tensor(m, {2, 3, 4, 8}, {96, 32, 8, 1}, 192), true},
        {"the same", tensor(m, {2, 3, 4, 8}, {96, 32, 8, 1}), tensor(m, {2, 3, 4, 8}, {96, 32, 8, 1}), false},
        {"the last element is the first", tensor(m, {2, 3, 4, 8}, {96, 32, 8, 1}), tensor(m, {2, 3, 4, 8}, {96, 32, 8, 1}, 191), false},
        {"halves of the same rows", tensor(m, {2, 3, 4, 8}, {192, 64, 16, 1}), tensor(m, {2, 3, 4, 8}, {192, 64, 16, 1}, 8), true},
        {"halves that meet in one element", tensor(m, {2, 3, 4, 8}, {192, 64, 16, 1}), tensor(m, {2, 3, 4, 8}, {192, 64, 16, 1}, 7), false},
        {"rows in turn", tensor(m, {2, 3, 4, 8}, {192, 64, 16, 1}), tensor(m, {2, 3, 4, 8}, {192, 64, 16, 1}, 24), true},
        {"[B,T,2,H,d]", tensor(m, {2, 3, 4, 8}, {192, 8, 48, 1}), tensor(m, {2, 3, 4, 8}, {192, 8, 48, 1}, 24), true},
        {"[B,H,2,T,d]", tensor(m, {2, 3, 4, 8}, {192, 64, 8, 1}), tensor(m, {2, 3, 4, 8}, {192, 64, 8, 1}, 32), true},
        {"[2,B,...] of which one is longer", tensor(m, {2, 3, 4, 8}, {96, 32, 8, 1}), tensor(m, {3, 3, 4, 8}, {96, 32, 8, 1}, 96), false},
        {"key, and value with fewer entries", tensor(m, {2, 3, 4, 8}, {168, 56, 14, 1}), tensor(m, {2, 3, 4, 6}, {168, 56, 14, 1}, 8),
         true},
        {"the same in the other order of dimensions", tensor(m, {2, 3, 4, 8}, {168, 56, 14, 1}),
         tensor(m, {3, 2, 4, 6}, {56, 168, 14, 1}, 8), true},
        {"scales behind each row of integers", tensor(m, {2, 3, 4, 8}, {108, 36, 9, 1}), tensor(m, {2, 3, 4, 1}, {108, 36, 9, 1}, 8), true},
        {"a negative stride", tensor(m, {2, 3, 4, 8}, {192, 64, 16, 1}), tensor(m, {2, 3, 4, 8}, {-192, 64, -16, 1}, 192 + 48 + 8), true},
        {"a negative stride onto the other", tensor(m, {2, 3, 4, 8}, {192, 64, 16, 1}),
         tensor(m, {2, 3, 4, 8}, {-192, 64, -16, 1}, 192 + 48), false},
        {"a broadcast between", tensor(m, {2, 3, 4, 8}, {0, 0, 16, 1}), tensor(m, {2, 3, 4, 8}, {0, 0, 16, 1}, 8), true},
        {"keys before and after a row", tensor(m, {2, 3, 4, 8}, {240, 80, 8, 1}), tensor(m, {2, 3, 6, 8}, {240, 80, 8, 1}, 32), true},
        {"keys before and after a row, one too many", tensor(m, {2, 3, 5, 8}, {240, 80, 8, 1}),
         tensor(m, {2, 3, 6, 8}, {240, 80, 8, 1}, 32), false},
        {"columns of single elements", tensor(m, {2, 3, 4, 1}, {24, 8, 2, 1}), tensor(m, {2, 3, 4, 1}, {24, 8, 2, 1}, 1), true},
    };
    for (const Pair &pair : pairs) {
        INFO(pair.what);
        CHECK(share_a_byte(pair.a, pair.b) == !pair.apart);
        CHECK(runtime::may_share_elements(pair.a, pair.b) == !pair.apart);
        CHECK(runtime::may_share_elements(pair.b, pair.a) == !pair.apart);
    }
}

TEST_CASE("shared elements: never taken for apart", "[runtime]") {
    std::vector<float> memory(1 << 14);
    Random random(17);
    int apart = 0, overlapping = 0, missed = 0;
    const std::vector<int64_t> strides = {0, 1, 2, 3, 4, 6, 8, 12, 24, 48, -1, -8, -24};
    for (int i = 0; i < 4000; ++i) {
        polyhead_tensor tensors[2] = {};
        for (polyhead_tensor &t : tensors) {
            t.rank = static_cast<int32_t>(random.between(1, 4));
            t.dtype = random.pick(std::vector<int32_t>{POLYHEAD_F32, POLYHEAD_F32, POLYHEAD_F16, POLYHEAD_I8});
            t.data = memory.data();
            t.offset = 2000 + random.between(0, 60);
            for (int n = 0; n < t.rank; ++n) {
                t.shape[n] = random.between(1, 4);
                t.stride[n] = random.pick(strides);
            }
        }
        const bool shared = share_a_byte(tensors[0], tensors[1]), may = runtime::may_share_elements(tensors[0], tensors[1]);
        CHECK((may || !shared)); // the promise
        apart += !may;
        overlapping += shared;
        missed += may && !shared;
    }
    CHECK(apart > 500);
    CHECK(overlapping > 300);
    CHECK(missed < 1200); // proofs may fail, but not as a rule
}

namespace {

// The outputs of one function, and what calls it. Each is moved onto each other one.
struct Outputs {
    std::vector<std::pair<std::string, polyhead_tensor *>> tensors;
    std::function<polyhead_status()> call;
};

// Every pair of outputs: in one place, one element further, and interleaved.
void check_pairs(const Outputs &outputs) {
    std::vector<float> memory(1 << 14);
    for (size_t i = 0; i < outputs.tensors.size(); ++i) {
        for (size_t j = 0; j < i; ++j) {
            polyhead_tensor &a = *outputs.tensors[i].second, &b = *outputs.tensors[j].second;
            const polyhead_tensor before[] = {a, b};
            INFO(outputs.tensors[i].first << " and " << outputs.tensors[j].first);
            const auto refused = [&](int64_t distance) { // bytes
                b.data = memory.data();
                a.data = reinterpret_cast<char *>(memory.data()) + distance;
                return outputs.call().code == POLYHEAD_ALIASED;
            };
            CHECK(refused(0));
            CHECK(refused(contract::dtype_bytes(a.dtype) * 4)); // a few elements further
            // Both twice as wide, in turn: rows of the one between rows of the other, as far as their innermost extents allow.
            const int64_t width =
                std::max(a.shape[a.rank - 1] * contract::dtype_bytes(a.dtype), b.shape[b.rank - 1] * contract::dtype_bytes(b.dtype));
            for (polyhead_tensor *t : {&a, &b}) {
                const int64_t element = contract::dtype_bytes(t->dtype);
                int64_t row = 2 * width / element;
                for (int n = t->rank - 2; n >= 0; --n) {
                    t->stride[n] = row;
                    row *= t->shape[n];
                }
            }
            CHECK_FALSE(refused(width));
            CHECK(refused(before[1].shape[b.rank - 1] * contract::dtype_bytes(b.dtype) - 4));
            a = before[0];
            b = before[1];
        }
    }
}

} // namespace

TEST_CASE("aliases: every pair of outputs of every function", "[runtime]") {
    SECTION("append and copy_page") {
        std::vector<int8_t> key(2 * 2 * 4 * 32), value = key;
        std::vector<float> key_scales(2 * 2 * 4), value_scales = key_scales, new_keys(2 * 2 * 3 * 32, 1.0f);
        std::vector<int32_t> lengths = {0, 1};
        polyhead_cache cache = polyhead_cache_of(view(key.data(), {2, 2, 4, 32}), view(value.data(), {2, 2, 4, 32}), {});
        cache.key_scales = view(key_scales.data(), {2, 2, 4, 1});
        cache.value_scales = view(value_scales.data(), {2, 2, 4, 1});
        polyhead_new_keys keys = polyhead_new_keys_of();
        keys.key = keys.value = view(new_keys.data(), {2, 2, 3, 32});
        keys.lengths = view(lengths.data(), {2});
        Outputs outputs{
            {{"key", &cache.key}, {"value", &cache.value}, {"key_scales", &cache.key_scales}, {"value_scales", &cache.value_scales}},
            [&] { return polyhead_append(&cache, &keys); }};
        check_pairs(outputs);
        outputs.call = [&] { return polyhead_copy_page(&cache, 0, 1); };
        check_pairs(outputs);
    }
    SECTION("merge_states") {
        std::vector<float> out(2 * 2 * 3 * 4), lse(2 * 2 * 3), other = out, other_lse = lse;
        const polyhead_state part = {view(other.data(), {2, 2, 3, 4}), view(other_lse.data(), {2, 2, 3})};
        polyhead_tensor result = view(out.data(), {2, 2, 3, 4}), sums = view(lse.data(), {2, 2, 3});
        // lse may have any strides here, but for the innermost.
        result.rank = 4;
        std::vector<float> memory(1024);
        const auto refused = [&](int64_t distance) {
            result.data = memory.data();
            sums.data = memory.data() + distance;
            return polyhead_merge_states(&part, 1, nullptr, &result, &sums).code == POLYHEAD_ALIASED;
        };
        CHECK(refused(0));
        CHECK(refused(47));
        CHECK_FALSE(refused(48));
        result.stride[1] = sums.stride[1] = 16; // rows of sums behind the rows of a head
        result.stride[0] = sums.stride[0] = 32;
        CHECK_FALSE(refused(12));
        CHECK(refused(11));
        CHECK(refused(14)); // the next head begins
    }
}

TEST_CASE("aliases: every pair of outputs of a kernel", "[runtime]") {
    SECTION("attention with scores") {
        SdpaCall call;
        call.fake.table.problem.scores = POLYHEAD_LOGITS;
        call.fake.table.problem.weights_mean = 1;
        std::vector<float> scores(B * H * T_q * T_kv), mean(B * T_q * T_kv);
        call.args.scores = view(scores.data(), {B, H, T_q, T_kv});
        call.args.weights_mean = view(mean.data(), {B, T_q, T_kv});
        check_pairs(
            {{{"out", &call.args.out}, {"lse", &call.args.lse}, {"scores", &call.args.scores}, {"weights_mean", &call.args.weights_mean}},
             [&] { return call.fake.run(call.args); }});
    }
    SECTION("a layer with a cache") {
        Problem p = mha(8, 2);
        p.cache = 1;
        p.causal = POLYHEAD_BOTTOM_RIGHT;
        MhaCall call(p);
        std::vector<float> keys(B * 2 * 10 * 4), values = keys;
        std::vector<int32_t> lengths = {4, 7};
        call.args.cache_lengths = view(lengths.data(), {B});
        call.args.key_cache = view(keys.data(), {B, 2, 10, 4});
        call.args.value_cache = view(values.data(), {B, 2, 10, 4});
        check_pairs({{{"out", &call.args.out}, {"key_cache", &call.args.key_cache}, {"value_cache", &call.args.value_cache}},
                     [&] { return call.fake.run(call.args); }});
    }
}

TEST_CASE("aliases: an output beside an input", "[runtime]") {
    SdpaCall call;
    std::vector<float> rows(B * H * T_q * (d + d_v));
    call.args.query = view(rows.data(), {B, H, T_q, d}, {H * T_q * (d + d_v), T_q * (d + d_v), d + d_v, 1});
    call.args.out = view(rows.data() + d, {B, H, T_q, d_v}, {H * T_q * (d + d_v), T_q * (d + d_v), d + d_v, 1});
    SECTION("in the same rows") {
        CHECK(std::string(call.fake.run(call.args).message).empty());
    }
    SECTION("one entry too near") {
        call.args.out.data = rows.data() + d - 1;
        CHECK(std::string(call.fake.run(call.args).message) == "out: shares memory with query, expected memory of its own");
    }
    SECTION("lengths in the output") {
        call.args.kv_lengths = TensorView(rows.data() + d, DType::i32, {B});
        CHECK(std::string(call.fake.run(call.args).message) == "out: shares memory with kv_lengths, expected memory of its own");
    }
    SECTION("rotate and append") {
        Rotation rotation;
        MutableTensorView in, out;
        static_cast<polyhead_tensor &>(in) = call.args.query;
        in.shape[3] = d_v;
        static_cast<polyhead_tensor &>(out) = call.args.out;
        CHECK(rotate(in, rotation, out).ok());
        CHECK(rotate(in, rotation, in).ok());
        out.data = rows.data() + d_v - 1;
        CHECK(std::string(rotate(in, rotation, out).message()) ==
              "out: shares memory with input, expected memory of its own, or the same elements");
        Cache cache;
        NewKeys keys;
        std::vector<int32_t> lengths(B, 0);
        static_cast<polyhead_tensor &>(cache.key) = call.args.out;
        static_cast<polyhead_tensor &>(keys.key) = call.args.query;
        keys.key.shape[3] = d_v;
        keys.lengths = view(lengths.data(), {B});
        CHECK(append(cache, keys).ok());
        keys.key.data = rows.data() + d;
        CHECK(std::string(append(cache, keys).message()) == "cache key: shares memory with key, expected memory of its own");
        keys.key.data = rows.data();
        keys.lengths = TensorView(rows.data() + d, DType::i32, {B});
        CHECK(std::string(append(cache, keys).message()) == "cache key: shares memory with lengths, expected memory of its own");
    }
}
