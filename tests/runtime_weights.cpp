// Packing: against the layout's index formula, joined and separate sources alike, and every refusal.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "instruments/reference/half.h"
#include "runtime_fake.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// Sources of a layer with every dimension odd: joined tensors, and views of their parts.
struct Sources {
    Problem p;
    int64_t q, k, v, out;
    std::vector<float> in_proj, in_bias, out_proj, out_bias;

    explicit Sources(const Problem &problem) : p(problem) {
        q = int64_t(p.num_heads) * p.head_dim;
        k = int64_t(p.num_kv_heads) * p.head_dim;
        v = int64_t(p.num_kv_heads) * p.head_dim_v;
        out = int64_t(p.num_heads) * p.head_dim_v;
        fill(in_proj, (q + k + v) * p.embed_dim);
        fill(in_bias, q + k + v);
        fill(out_proj, p.embed_dim * out);
        fill(out_bias, p.embed_dim);
    }
    WeightTensors joined() const {
        WeightTensors t(view(in_proj.data(), {q + k + v, p.embed_dim}), view(in_bias.data(), {q + k + v}),
                        view(out_proj.data(), {p.embed_dim, out}), view(out_bias.data(), {p.embed_dim}));
        return p.bias ? t : without_biases(t);
    }
    WeightTensors separate() const {
        WeightTensors t = joined();
        const int64_t D = p.embed_dim;
        t.in_proj = t.in_bias = polyhead_tensor{};
        t.query = view(in_proj.data(), {q, D});
        t.key = view(in_proj.data() + q * D, {k, D});
        t.value = view(in_proj.data() + (q + k) * D, {v, D});
        t.query_bias = view(in_bias.data(), {q});
        t.key_bias = view(in_bias.data() + q, {k});
        t.value_bias = view(in_bias.data() + q + k, {v});
        return p.bias ? t : without_biases(t);
    }
    static WeightTensors without_biases(WeightTensors t) {
        t.in_bias = t.query_bias = t.key_bias = t.value_bias = t.out_bias = polyhead_tensor{};
        return t;
    }
    static void fill(std::vector<float> &values, int64_t count) {
        static std::mt19937 random(7);
        values.resize(static_cast<size_t>(count));
        for (float &value : values) {
            value = static_cast<float>(random() % 20001) / 1000.0f - 10.0f;
        }
    }
};

// The layout as docs state it: [heads * ceil(width / 16)][ceil(depth / pair)][16][pair], zeros beyond width and depth. Returns the bytes
// after the section.
template <typename T>
const T *expect_weight(const T *packed, const T *source, int64_t heads, int64_t width, int64_t depth, int64_t pair = 1) {
    const int64_t panels = (width + 15) / 16, words = (depth + pair - 1) / pair;
    int64_t wrong = 0;
    for (int64_t h = 0; h < heads; ++h) {
        for (int64_t n = 0; n < panels * 16; ++n) {
            for (int64_t k = 0; k < words * pair; ++k) {
                const T expected = n < width && k < depth ? source[(h * width + n) * depth + k] : T(0);
                wrong += packed[(((h * panels + n / 16) * words + k / pair) * 16 + n % 16) * pair + k % pair] != expected;
            }
        }
    }
    CHECK(wrong == 0);
    return packed + heads * panels * words * pair * 16;
}

template <typename T> const T *expect_bias(const T *packed, const T *source, int64_t heads, int64_t width) {
    const int64_t padded = (width + 15) / 16 * 16;
    int64_t wrong = 0;
    for (int64_t h = 0; h < heads; ++h) {
        for (int64_t n = 0; n < padded; ++n) {
            wrong += packed[h * padded + n] != (n < width ? source[h * width + n] : T(0));
        }
    }
    CHECK(wrong == 0);
    return packed + heads * padded;
}

// The next section begins at a multiple of 512 bytes; zeros until there.
template <typename T> const T *next_section(const T *begin, const T *at) {
    for (; (at - begin) * sizeof(T) % 512 != 0; ++at) {
        CHECK(*at == T(0));
    }
    return at;
}

Problem odd_layer(bool bias) {
    Problem p = sdpa(3, 1, 17, 33);
    p.op = POLYHEAD_MHA;
    p.embed_dim = p.kdim = p.vdim = 51;
    p.bias = bias;
    return p;
}

std::vector<char> bytes_of(const Weights &weights) {
    const char *data = static_cast<const char *>(weights.raw()->data);
    return std::vector<char>(data, data + weights.bytes());
}

struct Refusal {
    Problem p = odd_layer(true);
    Sources s{p};
    FakeKernel fake{p};
    WeightTensors t = s.joined();

    std::string message(const WeightTensors &tensors, polyhead_code code) const {
        Weights weights;
        const Status status = fake.kernel().pack(tensors, &weights);
        CHECK(status.code() == code);
        CHECK(weights.raw()->data == nullptr);
        return status.message();
    }
};

} // namespace

TEST_CASE("weights: the layout", "[runtime]") {
    for (const bool bias : {false, true}) {
        for (const Problem &p : {odd_layer(bias), [&] {
                                     Problem even = mha(64, 2);
                                     even.bias = bias;
                                     return even;
                                 }()}) {
            const Sources s(p);
            FakeKernel fake(p);
            Weights weights;
            const Status status = fake.kernel().pack(s.joined(), &weights);
            INFO(status.message());
            REQUIRE(status.ok());
            CHECK(reinterpret_cast<uintptr_t>(weights.raw()->data) % 64 == 0);
            const int64_t D = p.embed_dim;
            const float *at = static_cast<const float *>(weights.raw()->data), *begin = at;
            at = expect_weight(at, s.in_proj.data(), p.num_heads, p.head_dim, D);
            at = next_section(begin, at);
            at = expect_weight(at, s.in_proj.data() + s.q * D, p.num_kv_heads, p.head_dim, D);
            at = next_section(begin, at);
            at = expect_weight(at, s.in_proj.data() + (s.q + s.k) * D, p.num_kv_heads, p.head_dim_v, D);
            at = expect_weight(next_section(begin, at), s.out_proj.data(), 1, D, s.out);
            if (bias) {
                at = expect_bias(next_section(begin, at), s.in_bias.data(), p.num_heads, p.head_dim);
                at = expect_bias(next_section(begin, at), s.in_bias.data() + s.q, p.num_kv_heads, p.head_dim);
                at = expect_bias(next_section(begin, at), s.in_bias.data() + s.q + s.k, p.num_kv_heads, p.head_dim_v);
                at = expect_bias(next_section(begin, at), s.out_bias.data(), 1, D);
            }
            CHECK(static_cast<size_t>(at - begin) * sizeof(float) == weights.bytes());
            CHECK(weights.bytes() == fake.kernel().weights_bytes());
        }
    }
}

TEST_CASE("weights: every form of the sources gives the same bytes", "[runtime]") {
    const Problem p = odd_layer(true);
    const Sources s(p);
    FakeKernel fake(p);
    Weights joined, separate, mixed, transposed;
    REQUIRE(fake.kernel().pack(s.joined(), &joined).ok());
    REQUIRE(fake.kernel().pack(s.separate(), &separate).ok());
    CHECK(bytes_of(joined) == bytes_of(separate));
    // nn.MultiheadAttention with kdim: separate weights, one bias.
    WeightTensors one_bias = s.separate();
    one_bias.query_bias = one_bias.key_bias = one_bias.value_bias = polyhead_tensor{};
    one_bias.in_bias = s.joined().in_bias;
    REQUIRE(fake.kernel().pack(one_bias, &mixed).ok());
    CHECK(bytes_of(joined) == bytes_of(mixed));
    // Stored [in_features, out_features] and seen through strides.
    std::vector<float> out_proj(s.out_proj.size());
    for (int64_t n = 0; n < p.embed_dim; ++n) {
        for (int64_t k = 0; k < s.out; ++k) {
            out_proj[static_cast<size_t>(k * p.embed_dim + n)] = s.out_proj[static_cast<size_t>(n * s.out + k)];
        }
    }
    WeightTensors strided = s.joined();
    strided.out_proj = view(out_proj.data(), {p.embed_dim, s.out}, {1, p.embed_dim});
    REQUIRE(fake.kernel().pack(strided, &transposed).ok());
    CHECK(bytes_of(joined) == bytes_of(transposed));
}

namespace {

// A linear layer of 16 bits and its sources, which have any pattern of bits, NaN too.
struct SixteenBits {
    static constexpr int64_t inputs = 19, outputs = 21, before = 3; // elements in front of the weight
    DType dtype;
    Problem p = linear(inputs, outputs);
    std::vector<uint16_t> w, b;
    WeightTensors tensors;

    explicit SixteenBits(DType of) : dtype(of), w(outputs * inputs + before), b(outputs) {
        p.bias = 1;
        p.dtype = static_cast<int32_t>(dtype);
        uint16_t next = 1;
        for (std::vector<uint16_t> *values : {&w, &b}) {
            for (uint16_t &value : *values) {
                value = next = static_cast<uint16_t>(next * 25173 + 13849);
            }
        }
        tensors.out_proj = TensorView(w.data(), dtype, {outputs, inputs});
        tensors.out_proj.offset = before;
        tensors.out_bias = TensorView(b.data(), dtype, {outputs});
    }
    std::vector<uint32_t> as_floats(const std::vector<uint16_t> &halves, int64_t from) const {
        std::vector<uint32_t> bits;
        for (size_t i = static_cast<size_t>(from); i < halves.size(); ++i) {
            bits.push_back(float_bits(from_storage_bits(halves[i], p.dtype)));
        }
        return bits;
    }
    // The bias, and the end of the packed memory behind a weight that ends here.
    void expect_rest(const void *weight_end, const Weights &weights) const {
        const uint32_t *begin = static_cast<const uint32_t *>(weights.raw()->data);
        const uint32_t *end =
            expect_bias(next_section(begin, static_cast<const uint32_t *>(weight_end)), as_floats(b, 0).data(), 1, outputs);
        CHECK(static_cast<size_t>(end - begin) * 4 == weights.bytes());
    }
};

} // namespace

TEST_CASE("weights: 16 bits keep their bits, biases become floats", "[runtime]") {
    for (const DType dtype : {DType::f16, DType::bf16}) {
        SixteenBits s(dtype);
        FakeKernel fake(s.p);
        Weights weights;
        const Status status = fake.kernel().pack(s.tensors, &weights);
        INFO(status.message());
        REQUIRE(status.ok());
        CHECK(weights.raw()->dtype == s.p.dtype);
        const uint16_t *begin = static_cast<const uint16_t *>(weights.raw()->data);
        s.expect_rest(expect_weight(begin, s.w.data() + s.before, 1, s.outputs, s.inputs, dtype == DType::bf16 ? 2 : 1), weights);
        // Sources of the other type are refused, and the weights stay.
        const size_t bytes = weights.bytes();
        s.tensors.out_bias.dtype = dtype == DType::f16 ? POLYHEAD_BF16 : POLYHEAD_F16;
        CHECK(std::string(fake.kernel().pack(s.tensors, &weights).message()) ==
              (dtype == DType::f16 ? "out_bias: dtype bf16, expected f16 or f32" : "out_bias: dtype f16, expected bf16 or f32"));
        CHECK(weights.bytes() == bytes);
    }
}

TEST_CASE("weights: floats are rounded once to 16 bits", "[runtime]") {
    for (const DType dtype : {DType::f16, DType::bf16}) {
        SixteenBits s(dtype);
        FakeKernel fake(s.p);
        std::vector<float> floats, b;
        Sources::fill(floats, s.outputs * s.inputs);
        Sources::fill(b, s.outputs);
        const float some[] = {0.0f,    -0.0f,    1.00390625f, 1.01171875f, 1.00048828125f, 65519.0f, 65520.0f, -1e30f,
                              3.4e38f, INFINITY, -INFINITY,   1e-40f,      5e-8f,          2.98e-8f, 2.99e-8f, 6e-5f};
        std::copy(std::begin(some), std::end(some), floats.begin());
        std::vector<uint16_t> rounded;
        for (const float x : floats) {
            rounded.push_back(to_storage_bits(x, s.p.dtype));
        }
        s.tensors.out_proj = view(floats.data(), {s.outputs, s.inputs});
        Weights weights;
        REQUIRE(fake.kernel().pack(s.tensors, &weights).ok()); // the bias has 16 bits
        const uint16_t *begin = static_cast<const uint16_t *>(weights.raw()->data);
        const int64_t pair = dtype == DType::bf16 ? 2 : 1;
        s.expect_rest(expect_weight(begin, rounded.data(), 1, s.outputs, s.inputs, pair), weights);
        s.tensors.out_bias = view(b.data(), {s.outputs});
        REQUIRE(fake.kernel().pack(s.tensors, &weights).ok());
        begin = static_cast<const uint16_t *>(weights.raw()->data);
        const void *bias = next_section(begin, expect_weight(begin, rounded.data(), 1, s.outputs, s.inputs, pair));
        expect_bias(static_cast<const float *>(bias), b.data(), 1, s.outputs);
    }
}

TEST_CASE("weights: f32 beside 16 bits", "[runtime]") {
    for (const DType dtype : {DType::f16, DType::bf16}) {
        SixteenBits s(dtype);
        const uint32_t other = contract::weight_layout_id(s.p);
        s.p.f32_weights = 1;
        CHECK(contract::weight_layout_id(s.p) != other);
        FakeKernel fake(s.p);
        Weights weights;
        REQUIRE(fake.kernel().pack(s.tensors, &weights).ok());
        CHECK(weights.raw()->dtype == POLYHEAD_F32);
        const uint32_t *begin = static_cast<const uint32_t *>(weights.raw()->data);
        const std::vector<uint32_t> widened = s.as_floats(s.w, s.before);
        s.expect_rest(expect_weight(begin, widened.data(), 1, s.outputs, s.inputs), weights);
        s.tensors.out_proj = view(reinterpret_cast<const float *>(widened.data()), {s.outputs, s.inputs});
        REQUIRE(fake.kernel().pack(s.tensors, &weights).ok());
        begin = static_cast<const uint32_t *>(weights.raw()->data);
        s.expect_rest(expect_weight(begin, widened.data(), 1, s.outputs, s.inputs), weights);
    }
}

TEST_CASE("weights: a linear layer, into the caller's memory", "[runtime]") {
    Problem p = linear(19, 21);
    p.bias = 1;
    FakeKernel fake(p);
    std::vector<float> w, b;
    Sources::fill(w, 21 * 19);
    Sources::fill(b, 21);
    WeightTensors t;
    t.out_proj = view(w.data(), {21, 19});
    t.out_bias = view(b.data(), {21});
    const size_t bytes = fake.kernel().weights_bytes();
    CHECK(bytes == 5 * 512 + 32 * sizeof(float)); // 2 * 19 * 16 floats fit into 5 times 512 bytes
    std::vector<float> memory(bytes / sizeof(float) + 32, 777.0f);
    const size_t shift = (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64 / sizeof(float);
    float *aligned = memory.data() + shift;
    polyhead_weights packed{};
    REQUIRE(fake.kernel().pack_into(t, aligned, &packed).ok());
    const float *bias = next_section<float>(aligned, expect_weight<float>(aligned, w.data(), 1, 21, 19));
    const float *end = expect_bias<float>(bias, b.data(), 1, 21);
    CHECK(*end == 777.0f); // not a byte more
    CHECK(packed.data == aligned);
    CHECK(packed.bytes == bytes);
    CHECK(std::string(fake.kernel().pack_into(t, aligned + 1, &packed).message()).find("expected a multiple of 64") != std::string::npos);
    CHECK(fake.kernel().pack_into(t, nullptr, &packed).code() == POLYHEAD_NULL_POINTER);
    CHECK(fake.kernel().pack_into(t, aligned, nullptr).code() == POLYHEAD_NULL_POINTER);
    t.out_proj.data = aligned; // its elements end within the packed bytes
    CHECK(std::string(fake.kernel().pack_into(t, aligned, &packed).message()) ==
          "memory: shares bytes with out_proj, expected memory of its own");
}

TEST_CASE_METHOD(Refusal, "weights: refused tensors", "[runtime]") {
    SECTION("nothing given") {
        CHECK(message(WeightTensors(), POLYHEAD_NULL_POINTER) == "in_proj: missing, expected a tensor of rank 2");
    }
    SECTION("one of three missing") {
        t = s.separate();
        t.value = polyhead_tensor{};
        CHECK(message(t, POLYHEAD_NULL_POINTER) == "value: missing, expected a tensor of rank 2");
    }
    SECTION("both forms") {
        t.query = s.separate().query;
        CHECK(message(t, POLYHEAD_WRONG_OPERATION) == "query: given, expected none, because in_proj is given");
        t.query = polyhead_tensor{};
        t.key_bias = s.separate().key_bias;
        CHECK(message(t, POLYHEAD_WRONG_OPERATION) == "key_bias: given, expected none, because in_bias is given");
    }
    SECTION("shape, dtype, null") {
        t.in_proj.shape[0] -= 1;
        CHECK(message(t, POLYHEAD_WRONG_SHAPE) == "in_proj: extent 100 of dimension 0, expected 101");
        t = s.joined();
        t.out_proj.dtype = POLYHEAD_F16;
        CHECK(message(t, POLYHEAD_WRONG_DTYPE) == "out_proj: dtype f16, expected f32");
        t = s.joined();
        t.out_bias.data = nullptr;
        CHECK(message(t, POLYHEAD_NULL_POINTER) == "out_bias: null pointer, expected the address of its elements");
    }
    SECTION("biases exactly when the problem has them") {
        t.out_bias = polyhead_tensor{};
        CHECK(message(t, POLYHEAD_NULL_POINTER) == "out_bias: missing, expected a tensor of rank 1");
        fake.table.problem.bias = 0;
        CHECK(message(s.joined(), POLYHEAD_WRONG_OPERATION) ==
              "in_bias: given, expected none, because the kernel was built without biases");
    }
}

TEST_CASE_METHOD(Refusal, "weights: refused problems, and what a failure leaves", "[runtime]") {
    SECTION("in_proj when the inputs have different widths") {
        fake.table.problem.kdim = 40;
        CHECK(message(t, POLYHEAD_WRONG_OPERATION) ==
              "in_proj: given, expected query, key and value weights, because kdim 40 and vdim 51 are not both embed_dim 51");
        CHECK(message(WeightTensors(), POLYHEAD_NULL_POINTER) == "query: missing, expected a tensor of rank 2");
    }
    SECTION("bare attention") {
        FakeKernel bare(sdpa(1, 1, 4, 4));
        Weights weights;
        CHECK(bare.kernel().weights_bytes() == 0);
        CHECK(std::string(bare.kernel().pack(t, &weights).message()) == "weights: given, expected none, because kernel fake computes sdpa");
        CHECK(fake.kernel().pack(t, nullptr).code() == POLYHEAD_NULL_POINTER);
    }
    SECTION("a linear layer takes out_proj") {
        FakeKernel projection(linear(4, 4));
        Weights weights;
        CHECK(std::string(projection.kernel().pack(t, &weights).message()) ==
              "in_proj: given, expected none, because the kernel is a linear layer, which takes out_proj and out_bias");
    }
    SECTION("a failure leaves earlier weights as they were") {
        Weights weights;
        REQUIRE(fake.kernel().pack(t, &weights).ok());
        const std::vector<char> before = bytes_of(weights);
        t.out_proj.data = nullptr;
        CHECK(!fake.kernel().pack(t, &weights).ok());
        CHECK(bytes_of(weights) == before);
    }
}

TEST_CASE("weights: moves", "[runtime]") {
    const Problem p = odd_layer(false);
    FakeKernel fake(p);
    Weights a, b;
    REQUIRE(fake.kernel().pack(Sources(p).joined(), &a).ok());
    const void *data = a.raw()->data;
    b = std::move(a);
    CHECK(b.raw()->data == data);
    Weights c(std::move(b));
    CHECK(c.raw()->data == data);
    CHECK(b.raw()->data == nullptr);
    c = Weights();
    CHECK(c.bytes() == 0);
}

TEST_CASE("weights: ids tell layouts apart, and nothing else", "[runtime]") {
    const Problem p = odd_layer(true);
    const uint32_t id = contract::weight_layout_id(p);
    Problem same = p;
    same.causal = POLYHEAD_TOP_LEFT;
    same.kv_lengths = same.lse = 1;
    same.seq_len_q = same.seq_len_kv = 128;
    CHECK(contract::weight_layout_id(same) == id);
    same.kdim = same.vdim = 0; // as usual: embed_dim
    CHECK(contract::weight_layout_id(same) == id);
    for (int32_t Problem::*field : {&Problem::op, &Problem::dtype, &Problem::num_heads, &Problem::num_kv_heads, &Problem::head_dim,
                                    &Problem::head_dim_v, &Problem::embed_dim, &Problem::kdim, &Problem::vdim}) {
        Problem other = p;
        other.*field += 1;
        CHECK(contract::weight_layout_id(other) != id);
    }
    Problem other = p;
    other.bias = 0;
    CHECK(contract::weight_layout_id(other) != id);
    CHECK(contract::weight_layout_id(sdpa(1, 1, 4, 4)) == 0);
}
