// The rules that only a layer or a linear layer has: widths, lengths of cross-attention, packed weights.
#include <cstdio>
#include <string>
#include <vector>

#include "runtime_calls.h"

using namespace polyhead;
using namespace polyhead::test;

TEST_CASE("runtime: shapes of a layer and of a linear layer", "[runtime]") {
    SECTION("width of the input") {
        MhaCall call;
        call.args.query.shape[2] = 7;
        call.refused(POLYHEAD_WRONG_SHAPE, "input: extent 7 of dimension 2, expected 8");
    }
    SECTION("either fixed length of self-attention") {
        Problem p = mha(8, 2);
        p.seq_len_kv = 9;
        MhaCall call(p);
        call.refused(POLYHEAD_WRONG_SHAPE, "input: extent 3 of dimension 1, expected 9");
    }
    SECTION("kdim, vdim, lengths of cross-attention") {
        MhaCall call(MhaCall::cross());
        SECTION("kdim") {
            call.args.key.shape[2] = 11;
            call.refused(POLYHEAD_WRONG_SHAPE, "key: extent 11 of dimension 2, expected 10");
        }
        SECTION("value length") {
            call.args.value.shape[1] = 4;
            call.refused(POLYHEAD_WRONG_SHAPE, "value: extent 4 of dimension 1, expected 5 as in key");
        }
        SECTION("batch of out") {
            call.args.out.shape[0] = 1;
            call.refused(POLYHEAD_WRONG_SHAPE, "out: extent 1 of dimension 0, expected 2 as in input");
        }
    }
    SECTION("linear") {
        MhaCall weights(linear(8, 5));
        std::vector<float> out(3 * 5);
        weights.args.op = POLYHEAD_LINEAR;
        weights.args.query = view(weights.input.data(), {3, 8});
        weights.args.out = view(out.data(), {4, 5});
        weights.refused(POLYHEAD_WRONG_SHAPE, "out: extent 4 of dimension 0, expected 3 as in input");
        weights.args.out = view(out.data(), {3, 5});
        CHECK(weights.fake.run(weights.args).code == POLYHEAD_OK);
    }
}

TEST_CASE("runtime: weights", "[runtime]") {
    MhaCall call;
    SECTION("missing") {
        call.args.weights = nullptr;
        call.refused(POLYHEAD_NULL_POINTER, "weights: missing, expected the packed weights of kernel fake");
    }
    SECTION("never packed") {
        call.weights = polyhead_weights{};
        call.refused(POLYHEAD_NULL_POINTER, "weights: null pointer, expected packed weights (pack them first)");
    }
    SECTION("of another problem") {
        char expected[128];
        const uint32_t id = call.weights.layout;
        call.weights.layout = contract::weight_layout_id(mha(16, 2));
        std::snprintf(expected, sizeof expected, "weights: layout id %08x, expected %08x: they were packed for another problem",
                      call.weights.layout, id);
        call.refused(POLYHEAD_WRONG_WEIGHTS, expected);
    }
    SECTION("panel, dtype, bytes") {
        call.weights.panel = 8;
        call.refused(POLYHEAD_WRONG_WEIGHTS, "weights: panel 8, expected 16");
        call.weights.panel = 16;
        call.weights.dtype = POLYHEAD_F16;
        call.refused(POLYHEAD_WRONG_WEIGHTS, "weights: dtype f16, expected f32");
        call.weights.dtype = POLYHEAD_F32;
        call.weights.bytes -= 4;
        call.refused(POLYHEAD_WRONG_WEIGHTS,
                     "weights: " + std::to_string(call.weights.bytes) + " bytes, expected " + std::to_string(call.weights.bytes + 4));
    }
    SECTION("alignment") {
        call.weights.data = static_cast<const char *>(call.weights.data) + 4;
        CHECK(call.fake.run(call.args).code == POLYHEAD_WRONG_WEIGHTS);
    }
}

TEST_CASE("runtime: a layer without keys gives the bias of its output projection", "[runtime]") {
    MhaCall call(MhaCall::cross());
    const contract::WeightLayout layout = contract::weight_layout(call.problem);
    auto *bias = reinterpret_cast<float *>(static_cast<char *>(const_cast<void *>(call.weights.data)) + layout.out.bias_offset);
    for (int i = 0; i < 8; ++i) {
        bias[i] = static_cast<float>(i);
    }
    call.args.key = view(static_cast<const float *>(nullptr), {B, 0, 10});
    call.args.value = view(static_cast<const float *>(nullptr), {B, 0, 12});
    CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
    CHECK(call.fake.calls == 0);
    for (size_t i = 0; i < call.out.size(); ++i) {
        CHECK(call.out[i] == static_cast<float>(i % 8));
    }
}
