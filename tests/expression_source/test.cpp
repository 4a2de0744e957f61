// A kernel whose expression is C++ gives the bits of the kernel whose expression is the same as text.
#include <cstring>
#include <vector>

#include <polyhead/polyhead.h>

#include "support/catch.h"

#include <expression_as_cpp.h>
#include <expression_as_text.h>
#include <expression_half_cpp.h>
#include <expression_half_text.h>

namespace {

struct Call {
    static constexpr int64_t batch = 2, heads = 3, seq_len = 70, head_dim = 16;
    std::vector<float> query = numbers(1), key = numbers(2), value = numbers(3), bias = numbers(4), out = numbers(0);
    std::vector<int32_t> last = {3, 20};
    float gain = 0.7f;

    static std::vector<float> numbers(int seed) {
        std::vector<float> values(batch * heads * seq_len * head_dim);
        for (size_t i = 0; i < values.size(); i++) {
            values[i] = float((int64_t(i) * 7919 + seed * 104729) % 1999) / 600.0f - 1.6f;
        }
        return values;
    }

    std::vector<float> run(const polyhead::Kernel &kernel) {
        const polyhead::TensorView tensors[] = {polyhead::view(bias.data(), {heads, 17}), polyhead::view(last.data(), {batch}),
                                                polyhead::view(&gain, {1})};
        polyhead::SdpaArgs args;
        args.query = polyhead::view(query.data(), {batch, heads, seq_len, head_dim});
        args.key = polyhead::view(key.data(), {batch, heads, seq_len, head_dim});
        args.value = polyhead::view(value.data(), {batch, heads, seq_len, head_dim});
        args.out = polyhead::view(out.data(), {batch, heads, seq_len, head_dim});
        args.expression_tensors = kernel.num_declarations > 0 ? tensors : nullptr;
        args.num_expression_tensors = kernel.num_declarations;
        const polyhead::Status status = kernel.run(args);
        INFO(kernel.name << ": " << status.message());
        CHECK(status.ok());
        return out;
    }
};

bool same_bits(const std::vector<float> &a, const std::vector<float> &b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

} // namespace

TEST_CASE("expressions: C++ gives the bits of the same text") {
    Call call;
    const std::vector<float> as_text = call.run(expression_as_text);
    CHECK(!same_bits(as_text, call.run(expression_half_text)));
    CHECK(same_bits(as_text, call.run(expression_as_cpp)));
    // No range of keys follows from a mask in C++, so its kernel has other loops. Where products and sums are rounded one after the other,
    // LLVM may then add up a short head_dim in another order.
    const std::vector<float> half_as_text = call.run(expression_half_text), half_as_cpp = call.run(expression_half_cpp);
    if (polyhead_cpu_features() & POLYHEAD_CPU_FMA) {
        CHECK(same_bits(half_as_text, half_as_cpp));
    }
    for (size_t i = 0; i < half_as_text.size(); i++) {
        CHECK(half_as_cpp[i] == Approx(half_as_text[i]).margin(2e-6));
    }
}

TEST_CASE("expressions: a kernel knows that its expression is C++") {
    REQUIRE(expression_as_cpp.num_declarations == 3);
    CHECK(std::strcmp(expression_as_cpp.declarations[1].name, "last") == 0);
    CHECK(expression_as_cpp.declarations[1].dtype == POLYHEAD_I32);
    const std::string text = expression_as_cpp.problem.expression;
    CHECK(text.find("tensor bias:f32[h,17];") == 0);
    CHECK(text.find(";source s_capped_bias_") != std::string::npos);
}
