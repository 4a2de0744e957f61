// Gates, norms and shared caches: what a kernel is called with, what is refused, and how a gate among the rows of query is packed.
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime_calls.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

Problem with_gate_and_norms() {
    Problem p = SdpaCall::problem();
    p.kv_lengths = p.lse = 0;
    p.gate = POLYHEAD_GATE_OF_ENTRIES;
    p.query_norm = POLYHEAD_LAYER_NORM;
    p.key_norm = POLYHEAD_RMS_NORM_PLUS_ONE;
    p.value_norm = 1;
    return p;
}

struct NormCall : SdpaCall {
    std::vector<float> gate = std::vector<float>(B * H * T_q * d_v), weight = std::vector<float>(d), bias = weight, key_weight = weight;

    NormCall() {
        fake.table.problem = with_gate_and_norms();
        args.kv_lengths = args.lse = polyhead_tensor{};
        args.gate = view(gate.data(), {B, H, T_q, d_v});
        args.query_norm_weight = view(weight.data(), {d});
        args.query_norm_bias = view(bias.data(), {d});
        args.key_norm_weight = view(key_weight.data(), {d});
        args.norm_epsilon = 1e-5f;
    }
    void accepted() {
        const polyhead_status status = fake.run(args);
        INFO(status.message);
        CHECK(status.code == POLYHEAD_OK);
    }
};

// query, key, value, gate, the weights and biases of the norms, softmax_scale, from_end, epsilon, out
constexpr int gate_place = 3, norm_place = 4, epsilon_place = 9;

} // namespace

TEST_CASE("gates and norms: a kernel gets them in the order of the table", "[runtime]") {
    NormCall call;
    call.fake.on_call = [&](FakeKernel &f) {
        CHECK(f.buffer(gate_place).host == call.gate.data());
        CHECK(f.buffer(gate_place).extents == std::vector<int32_t>{d_v, T_q, H, B});
        CHECK(f.buffer(norm_place).host == call.weight.data());
        CHECK(f.buffer(norm_place + 1).host == call.bias.data());
        CHECK(f.buffer(norm_place + 2).host == call.key_weight.data());
        CHECK(f.buffer(norm_place + 2).extents == std::vector<int32_t>{d});
        CHECK(f.scalar<float>(epsilon_place) == 1e-5f);
    };
    call.accepted();
    SECTION("what is left out changes nothing") {
        call.args.query_norm_weight = call.args.query_norm_bias = call.args.key_norm_weight = polyhead_tensor{};
        call.fake.on_call = [](FakeKernel &f) {
            const float expected[] = {1.0f, 0.0f, 0.0f}; // a factor, a summand, and what is added to a factor of 1
            for (int i = 0; i < 3; ++i) {
                const SeenBuffer seen = f.buffer(norm_place + i);
                CHECK(*static_cast<const float *>(seen.host) == expected[i]);
                CHECK(seen.strides == std::vector<int32_t>{0});
            }
        };
        call.accepted();
    }
    SECTION("one number of a head") {
        call.fake.table.problem.gate = POLYHEAD_GATE_OF_HEADS;
        call.args.gate = view(call.gate.data(), {B, H, T_q, 1});
        call.fake.on_call = [](FakeKernel &f) { CHECK(f.buffer(gate_place).extents == std::vector<int32_t>{1, T_q, H, B}); };
        call.accepted();
    }
    SECTION("from C++") {
        SdpaArgs args;
        const auto put = [](auto &to, const polyhead_tensor &from) { static_cast<polyhead_tensor &>(to) = from; };
        put(args.query, call.args.query);
        put(args.key, call.args.key);
        put(args.value, call.args.value);
        put(args.out, call.args.out);
        put(args.gate, call.args.gate);
        put(args.query_norm_weight, call.args.query_norm_weight);
        put(args.query_norm_bias, call.args.query_norm_bias);
        put(args.key_norm_weight, call.args.key_norm_weight);
        args.norm_epsilon = 1e-5f;
        CHECK(call.fake.kernel().run(args).ok());
    }
}

TEST_CASE("gates and norms: what is refused", "[runtime]") {
    NormCall call;
    Problem &p = call.fake.table.problem;
    SECTION("a gate that is missing, or of another shape") {
        call.args.gate = polyhead_tensor{};
        call.refused(POLYHEAD_NULL_POINTER, "gate: missing, expected a tensor of rank 4");
        call.args.gate = view(call.gate.data(), {B, H, T_q, 1});
        call.refused(POLYHEAD_WRONG_SHAPE, "gate: extent 1 of dimension 3, expected " + std::to_string(d_v));
        call.args.gate = view(call.gate.data(), {B, H, T_q - 1, d_v});
        call.refused(POLYHEAD_WRONG_SHAPE,
                     "gate: extent " + std::to_string(T_q - 1) + " of dimension 2, expected " + std::to_string(T_q) + " as in query");
    }
    SECTION("weights of another length") {
        call.args.key_norm_weight = view(call.key_weight.data(), {d - 1});
        call.refused(POLYHEAD_WRONG_SHAPE,
                     "key_norm_weight: extent " + std::to_string(d - 1) + " of dimension 0, expected " + std::to_string(d));
    }
    SECTION("epsilon") {
        for (const auto &[epsilon, text] : {std::pair(0.0f, "0"), std::pair(-1.0f, "-1"), std::pair(INFINITY, "inf")}) {
            call.args.norm_epsilon = epsilon;
            call.refused(POLYHEAD_BAD_VALUE, std::string("norm_epsilon: value ") + text + ", expected a number from 1e-37 to 1e38");
        }
    }
    SECTION("what the kernel was not built with") {
        p.gate = POLYHEAD_NO_GATE;
        call.refused(POLYHEAD_WRONG_OPERATION, "gate: given, expected none, because the kernel was built without a gate");
        p.gate = POLYHEAD_GATE_OF_ENTRIES;
        p.query_norm = POLYHEAD_RMS_NORM;
        call.refused(POLYHEAD_WRONG_OPERATION,
                     "query_norm_bias: given, expected none, because the kernel was built without a norm of query");
        p.query_norm = p.key_norm = p.value_norm = 0;
        call.args.query_norm_weight = call.args.query_norm_bias = call.args.key_norm_weight = polyhead_tensor{};
        call.refused(POLYHEAD_WRONG_OPERATION, "norm_epsilon: given, expected none, because the kernel was built without a norm");
    }
}

TEST_CASE("gates and norms: a norm of all heads has a weight for each of their entries", "[runtime]") {
    Problem p = mha(8, 2);
    p.query_norm = p.key_norm = POLYHEAD_RMS_NORM;
    p.norm_of_projection = 1;
    p.num_kv_heads = 1;
    MhaCall call(p);
    std::vector<float> weight(8);
    call.args.norm_epsilon = 1e-6f;
    call.args.query_norm_weight = view(weight.data(), {8});
    call.args.key_norm_weight = view(weight.data(), {4});
    CHECK(std::string(call.fake.run(call.args).message).empty());
    call.fake.calls = 0;
    std::fill(call.out.begin(), call.out.end(), untouched);
    call.args.key_norm_weight = view(weight.data(), {8});
    call.refused(POLYHEAD_WRONG_SHAPE, "key_norm_weight: extent 8 of dimension 0, expected 4");
}

TEST_CASE("shared cache: rows of any length are read, pages of it by several rows", "[runtime]") {
    constexpr int64_t heads = 2, width = 4, page_size = 4;
    Problem p = mha(8, 2);
    p.cache = p.shared_cache = 1;
    p.page_size = page_size;
    p.causal = POLYHEAD_BOTTOM_RIGHT;
    MhaCall call(p);
    std::vector<float> keys(3 * heads * page_size * width), values = keys;
    std::vector<int32_t> lengths = {4, 1}, table = {1, 2, 1, 2}; // both rows have the same keys
    call.args.cache_lengths = view(lengths.data(), {B});
    call.args.page_table = view(table.data(), {B, 2});
    call.args.key_cache = view(keys.data(), {3, heads, page_size, width});
    call.args.value_cache = view(values.data(), {3, heads, page_size, width});
    call.fake.on_call = [&](FakeKernel &f) { // input, two weights, table, lengths, caches, softmax_scale, from_end, out
        CHECK(f.buffer(5).host == keys.data());
        CHECK(f.buffer(6).host == values.data());
        CHECK(f.buffer(9).host == call.out.data());
    };
    const polyhead_status status = call.fake.run(call.args);
    CHECK(std::string(status.message).empty());
    call.fake.calls = 0;
    std::fill(call.out.begin(), call.out.end(), untouched);
    SECTION("a cache that is shorter than its lengths") {
        lengths[1] = static_cast<int32_t>(2 * page_size - T_q + 1);
        const std::string most = std::to_string(2 * page_size - T_q);
        call.refused(POLYHEAD_BAD_VALUE, "cache_lengths: value " + std::to_string(lengths[1]) +
                                             " at index 1 of dimension 0, expected 0 to " + most + " (capacity 8, " + std::to_string(T_q) +
                                             " new keys)");
    }
    SECTION("a page that does not exist") {
        table[1] = 3;
        const polyhead_status refused = call.fake.run(call.args);
        CHECK(refused.code == POLYHEAD_BAD_VALUE);
        CHECK(std::string(refused.message).find("page_table") == 0);
    }
}

namespace {

// Weights of a layer with a gate, apart and between the rows of query.
struct GatedWeights {
    static constexpr int64_t D = 6, heads = 3, width = 5, width_v = 4;
    Problem p = mha(6, 3);
    int64_t gates;
    std::vector<float> query, gate, joined, key, value, out, query_bias, gate_bias, joined_bias, other;

    explicit GatedWeights(int32_t kind) {
        p.head_dim = width;
        p.head_dim_v = width_v;
        p.bias = 1;
        p.gate = kind;
        gates = contract::gates_of_head(p);
        float next = 1;
        const auto fill = [&next](std::vector<float> &values, int64_t count) {
            values.resize(static_cast<size_t>(count));
            for (float &x : values) {
                x = next++;
            }
        };
        fill(query, heads * width * D);
        fill(gate, heads * gates * D);
        fill(key, heads * width * D);
        fill(value, heads * width_v * D);
        fill(out, D * heads * width_v);
        fill(query_bias, heads * width);
        fill(gate_bias, heads * gates);
        fill(other, 64);
        for (int64_t h = 0; h < heads; ++h) {
            joined.insert(joined.end(), query.begin() + h * width * D, query.begin() + (h + 1) * width * D);
            joined.insert(joined.end(), gate.begin() + h * gates * D, gate.begin() + (h + 1) * gates * D);
            joined_bias.insert(joined_bias.end(), query_bias.begin() + h * width, query_bias.begin() + (h + 1) * width);
            joined_bias.insert(joined_bias.end(), gate_bias.begin() + h * gates, gate_bias.begin() + (h + 1) * gates);
        }
    }
    WeightTensors tensors(bool apart) const {
        WeightTensors t;
        const int64_t rows = heads * (width + (apart ? 0 : gates));
        t.query = view(apart ? query.data() : joined.data(), {rows, D});
        t.query_bias = view(apart ? query_bias.data() : joined_bias.data(), {rows});
        t.key = view(key.data(), {heads * width, D});
        t.value = view(value.data(), {heads * width_v, D});
        t.out_proj = view(out.data(), {D, heads * width_v});
        t.key_bias = view(other.data(), {heads * width});
        t.value_bias = view(other.data(), {heads * width_v});
        t.out_bias = view(other.data(), {D});
        if (apart) {
            t.gate = view(gate.data(), {heads * gates, D});
            t.gate_bias = view(gate_bias.data(), {heads * gates});
        }
        return t;
    }
};

polyhead_status pack(const Problem &p, const WeightTensors &tensors, std::vector<float> *packed) {
    const FakeKernel fake(p);
    packed->assign(polyhead_weights_bytes(&fake.table) / sizeof(float) + 16, -1.0f);
    float *const aligned = reinterpret_cast<float *>((reinterpret_cast<uintptr_t>(packed->data()) + 63) / 64 * 64);
    polyhead_weights weights{};
    const polyhead_status status = polyhead_pack(&fake.table, &tensors, aligned, &weights);
    packed->erase(packed->begin(), packed->begin() + (aligned - packed->data()));
    packed->resize(polyhead_weights_bytes(&fake.table) / sizeof(float));
    return status;
}

} // namespace

TEST_CASE("packing: a gate between the rows of query is packed as one that stands apart", "[runtime]") {
    for (const int32_t kind : {POLYHEAD_GATE_OF_HEADS, POLYHEAD_GATE_OF_ENTRIES}) {
        const GatedWeights w(kind);
        std::vector<float> apart, joined;
        CHECK(std::string(pack(w.p, w.tensors(true), &apart).message).empty());
        CHECK(std::string(pack(w.p, w.tensors(false), &joined).message).empty());
        CHECK(apart == joined);
        // Column n of gate h, by the layout's formula.
        const contract::WeightLayout layout = contract::weight_layout(w.p);
        const float *const packed = apart.data() + layout.gate.weight_offset / sizeof(float);
        const bool entries = kind == POLYHEAD_GATE_OF_ENTRIES;
        for (int64_t h = 0; h < w.heads; ++h) {
            for (int64_t n = 0; n < w.gates; ++n) {
                const int64_t panel = entries ? h : 0, column = entries ? n : h;
                for (int64_t k = 0; k < w.D; ++k) {
                    CHECK(packed[(panel * w.D + k) * 16 + column] == w.gate[static_cast<size_t>((h * w.gates + n) * w.D + k)]);
                }
            }
        }
    }
}

TEST_CASE("packing: weights that a layer does not have", "[runtime]") {
    GatedWeights w(POLYHEAD_GATE_OF_ENTRIES);
    std::vector<float> packed;
    WeightTensors t = w.tensors(false);
    const auto message = [&] { return std::string(pack(w.p, t, &packed).message); };
    SECTION("rows of query without its gate") {
        t.query = view(w.query.data(), {w.heads * w.width, w.D});
        CHECK(message() == "query: extent 15 of dimension 0, expected 27");
    }
    SECTION("a gate of a layer that has none") {
        t = w.tensors(true);
        w.p.gate = POLYHEAD_NO_GATE;
        CHECK(message() == "gate: given, expected none, because the kernel was built without gate");
    }
    SECTION("values that are keys") {
        t = w.tensors(true);
        w.p.value_from_key = 1;
        CHECK(message() == "value: given, expected none, because value is taken from key");
    }
    SECTION("keys of a cache that another layer writes") {
        t = w.tensors(true);
        w.p.cache = w.p.shared_cache = 1;
        CHECK(message() == "key: given, expected none, because another layer writes the cache");
    }
}
