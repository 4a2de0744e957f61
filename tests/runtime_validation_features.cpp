// Every rule of masks, modifiers, expression tensors and outputs: which code, which sentence, and that nothing was written or started.
#include <limits>

#include "runtime_features.h"

using namespace polyhead;
using namespace polyhead::test;

TEST_CASE("rules of features: what the kernel was not built with", "[runtime]") {
    FeatureCall call;
    Problem &p = call.built();
    const auto without = [&](int32_t Problem::*field, const std::string &tensor, const std::string &feature) {
        const int32_t before = p.*field;
        p.*field = 0;
        call.refused(POLYHEAD_WRONG_OPERATION, tensor + ": given, expected none, because the kernel was built without " + feature);
        p.*field = before;
    };
    without(&Problem::kv_lengths, "kv_lengths", "key lengths");
    without(&Problem::position_offsets, "position_offsets", "position offsets");
    without(&Problem::mask, "mask", "mask");
    without(&Problem::score_bias, "score_bias", "score bias");
    without(&Problem::alibi, "alibi_slopes", "alibi");
    without(&Problem::sinks, "sinks", "sinks");
    without(&Problem::rope, "rope_cos", "rope");
    call.args.rope_cos = call.args.rope_sin = polyhead_tensor{};
    without(&Problem::rope, "positions_q", "rope");
    without(&Problem::head_gate, "head_gate", "head gate");
    without(&Problem::lse, "lse", "lse");
    without(&Problem::scores, "scores", "scores");
    without(&Problem::weights_mean, "weights_mean", "weights_mean");
    without(&Problem::softcap, "softcap", "softcap");
    without(&Problem::window, "window", "window");
}

TEST_CASE("rules of features: a linear layer takes none", "[runtime]") {
    MhaCall call(linear(8, 8));
    call.args.op = POLYHEAD_LINEAR;
    call.args.query = view(call.input.data(), {3, 8});
    call.args.out = view(call.out.data(), {3, 8});
    std::vector<float> mask(9);
    SECTION("mask") {
        call.args.mask = view(mask.data(), {3, 3});
        call.refused(POLYHEAD_WRONG_OPERATION, "mask: given, expected none, because the kernel was built without mask");
    }
    SECTION("window") {
        call.args.has_window = 1;
        call.refused(POLYHEAD_WRONG_OPERATION, "window: given, expected none, because the kernel was built without window");
    }
    SECTION("softcap") {
        call.args.softcap = 1;
        call.refused(POLYHEAD_WRONG_OPERATION, "softcap: given, expected none, because the kernel was built without softcap");
    }
    CHECK(call.fake.calls == 0);
}

TEST_CASE("rules of features: what must be given", "[runtime]") {
    FeatureCall call;
    SECTION("rotary tables") {
        call.args.rope_sin = polyhead_tensor{};
        call.refused(POLYHEAD_NULL_POINTER, "rope_sin: missing, expected a tensor of rank 2");
        call.args.rope_cos = polyhead_tensor{};
        call.refused(POLYHEAD_NULL_POINTER, "rope_cos: missing, expected a tensor of rank 2");
    }
    SECTION("outputs") {
        call.args.weights_mean = polyhead_tensor{};
        call.refused(POLYHEAD_NULL_POINTER, "weights_mean: missing, expected a tensor of rank 3");
        call.args.scores = polyhead_tensor{};
        call.refused(POLYHEAD_NULL_POINTER, "scores: missing, expected a tensor of rank 4");
    }
    SECTION("softcap") {
        call.args.softcap = 0;
        call.refused(POLYHEAD_BAD_VALUE, "softcap: value 0, expected a number from 1e-37 to 1e38");
    }
    SECTION("all the rest may be left out") {
        call.leave_out();
        call.accepted();
        call.built().mask_broadcast = call.built().score_bias_broadcast = 0;
        call.accepted();
    }
}

TEST_CASE("rules of features: shapes of masks", "[runtime]") {
    FeatureCall call;
    const auto given = [&](std::initializer_list<int64_t> shape) { call.args.mask = view_bool(call.boolean, shape); };
    SECTION("rank") {
        given({1, 1, 1, T_q, T_kv});
        call.refused(POLYHEAD_WRONG_SHAPE, "mask: rank 5, expected 1 to 4");
        given({1, 1, 1, 1, 1, 1, T_kv});
        call.refused(POLYHEAD_WRONG_SHAPE, "mask: rank 7, expected 1 to 4");
        given({});
        call.refused(POLYHEAD_WRONG_SHAPE, "mask: rank 0, expected 1 to 4");
    }
    SECTION("extents that cannot be broadcast") {
        given({3, H, T_q, T_kv});
        call.refused(POLYHEAD_WRONG_SHAPE, "mask: extent 3 of dimension 0, expected 1 or 2 as in query");
        given({2, T_q, T_kv});
        call.refused(POLYHEAD_WRONG_SHAPE, "mask: extent 2 of dimension 0, expected 1 or 4");
        given({2, T_kv});
        call.refused(POLYHEAD_WRONG_SHAPE, "mask: extent 2 of dimension 0, expected 1 or 3 as in query");
        given({T_q, 1});
        call.refused(POLYHEAD_WRONG_SHAPE, "mask: extent 1 of dimension 1, expected 5 as in key");
        given({T_q, 6});
        call.refused(POLYHEAD_WRONG_SHAPE, "mask: extent 6 of dimension 1, expected 5 as in key");
        call.args.score_bias = view(call.score_bias.data(), {H, 2, T_kv});
        given({T_kv});
        call.refused(POLYHEAD_WRONG_SHAPE, "score_bias: extent 2 of dimension 1, expected 1 or 3 as in query");
    }
    SECTION("built for one element") {
        call.built().mask_broadcast = POLYHEAD_BROADCAST_Q;
        given({T_q, T_kv});
        call.refused(POLYHEAD_WRONG_SHAPE, "mask: extent 3 of dimension 0, expected 1 as in the kernel, which has one element there");
        call.built().mask_broadcast = POLYHEAD_BROADCAST_KV;
        call.refused(POLYHEAD_WRONG_SHAPE, "mask: extent 5 of dimension 1, expected 1 as in the kernel, which has one element there");
    }
    SECTION("a layer of self-attention") {
        Problem p = mha(8, 2);
        p.mask = POLYHEAD_BOOLEAN_MASK;
        MhaCall layer(p);
        layer.args.mask = view_bool(call.boolean, {T_q, 2});
        layer.refused(POLYHEAD_WRONG_SHAPE, "mask: extent 2 of dimension 1, expected 3 as in input");
    }
}

TEST_CASE("rules of features: a mask that is spread to more elements than an index counts", "[runtime]") {
    FeatureCall call;
    call.leave_out();
    call.built() = sdpa(1, 1, 1, 1);
    call.built().mask = POLYHEAD_BOOLEAN_MASK;
    call.fake.table.num_declarations = call.args.num_expression_tensors = 0;
    polyhead_args args = polyhead_args_of(POLYHEAD_SDPA);
    args.query = view(call.query.data(), {1, 1, 65536, 1}, {0, 0, 0, 1});
    args.key = args.value = view(call.key.data(), {1, 1, 65536, 1}, {0, 0, 0, 1});
    std::vector<float> out(65536);
    std::vector<uint8_t> row(65536);
    args.out = view(out.data(), {1, 1, 65536, 1});
    for (const polyhead_tensor &mask : {polyhead_tensor{}, static_cast<polyhead_tensor>(view_bool(row, {65536}))}) {
        args.mask = mask;
        CHECK(std::string(call.fake.run(args).message).empty());
    }
    args.mask = view_bool(row, {65536, 65536});
    args.mask.stride[0] = 0; // as many elements of its own
    CHECK(std::string(call.fake.run(args).message) == "mask: 4294967296 elements (4294967296 bytes), expected fewer than 2^31: call "
                                                      "with some of the queries, heads or batch rows at a time");
}

TEST_CASE("rules of features: dtypes and strides", "[runtime]") {
    FeatureCall call;
    SECTION("a mask of the other kind") {
        call.args.mask = view(call.additive.data(), {T_q, T_kv});
        call.refused(POLYHEAD_WRONG_DTYPE, "mask: dtype f32, expected bool");
        call.built().mask = POLYHEAD_ADDITIVE_MASK;
        call.args.mask = view_bool(call.boolean, {T_q, T_kv});
        call.refused(POLYHEAD_WRONG_DTYPE, "mask: dtype bool, expected f32");
    }
    SECTION("others") {
        call.args.score_bias.dtype = POLYHEAD_F16;
        call.refused(POLYHEAD_WRONG_DTYPE, "score_bias: dtype f16, expected f32");
        call.args.score_bias.dtype = POLYHEAD_F32;
        call.args.positions_kv.dtype = POLYHEAD_F32;
        call.refused(POLYHEAD_WRONG_DTYPE, "positions_kv: dtype f32, expected i32");
    }
    SECTION("a mask whose keys do not follow one another") {
        call.args.mask.stride[3] = 0;
        call.refused(POLYHEAD_WRONG_STRIDE, "mask: stride 0 of dimension 3, expected 1");
    }
    SECTION("positions, one for every query, and every second one") {
        call.args.positions_q.stride[1] = 0;
        call.accepted();
        call.args.positions_q.stride[1] = 2;
        call.refused(POLYHEAD_WRONG_STRIDE, "positions_q: stride 2 of dimension 1, expected 1 or 0");
    }
    SECTION("outputs that overlap themselves") {
        call.args.scores.stride[1] = 0;
        call.refused(POLYHEAD_WRONG_STRIDE, "scores: stride 0 of dimension 1 makes elements overlap, expected at least 1");
    }
}

TEST_CASE("rules of features: shapes", "[runtime]") {
    FeatureCall call;
    SECTION("alibi") {
        call.args.alibi_slopes = view(call.slopes.data(), {1, B, H});
        call.refused(POLYHEAD_WRONG_SHAPE, "alibi_slopes: rank 3, expected 1 to 2");
        call.args.alibi_slopes = view(call.slopes.data(), {3});
        call.refused(POLYHEAD_WRONG_SHAPE, "alibi_slopes: extent 3 of dimension 0, expected 4");
    }
    SECTION("a gate of the wrong length") {
        call.args.head_gate.shape[0] = 3;
        call.refused(POLYHEAD_WRONG_SHAPE, "head_gate: extent 3 of dimension 0, expected 4");
    }
    SECTION("sinks") {
        call.args.sinks.shape[0] = H_kv;
        call.refused(POLYHEAD_WRONG_SHAPE, "sinks: extent 2 of dimension 0, expected 4");
    }
    SECTION("position offsets") {
        call.args.position_offsets.shape[0] = 1;
        call.refused(POLYHEAD_WRONG_SHAPE, "position_offsets: extent 1 of dimension 0, expected 2 as in query");
    }
    SECTION("positions") {
        call.args.positions_kv.shape[1] = 4;
        call.refused(POLYHEAD_WRONG_SHAPE, "positions_kv: extent 4 of dimension 1, expected 5 as in key");
    }
    SECTION("rotary tables") {
        call.args.rope_sin.shape[0] = 6;
        call.refused(POLYHEAD_WRONG_SHAPE, "rope_sin: extent 6 of dimension 0, expected 12 as in rope_cos");
        call.args.rope_cos.shape[1] = 4;
        call.refused(POLYHEAD_WRONG_SHAPE, "rope_cos: extent 4 of dimension 1, expected 3");
        call.args.rope_cos = view(call.cosine.data(), {0, pairs});
        call.args.rope_sin = view(call.sine.data(), {0, pairs});
        call.refused(POLYHEAD_WRONG_SHAPE, "rope_cos: extent 0 of dimension 0, expected at least 1");
    }
    SECTION("rotary_dim left out is head_dim") {
        call.built().rotary_dim = 0;
        call.refused(POLYHEAD_WRONG_SHAPE, "rope_cos: extent 3 of dimension 1, expected 4");
    }
    SECTION("scores and mean weights") {
        call.args.scores.shape[1] = 1;
        call.refused(POLYHEAD_WRONG_SHAPE, "scores: extent 1 of dimension 1, expected 4");
        call.args.scores.shape[1] = H;
        call.args.weights_mean = view(call.weights_mean.data(), {B, H, T_q, T_kv});
        call.refused(POLYHEAD_WRONG_SHAPE, "weights_mean: rank 4, expected 3");
    }
    SECTION("the mean of no heads") {
        call.built().num_heads = call.built().num_kv_heads = 0;
        call.built().group_size = 2;
        call.args.query.shape[1] = 0;
        call.refused(POLYHEAD_WRONG_SHAPE,
                     "query: extent 0 of dimension 1, expected at least 1, because weights_mean is the mean over heads");
    }
}

TEST_CASE("rules of features: lengths whose positions leave 32 bits", "[runtime]") {
    FeatureCall plain;
    plain.leave_out();
    plain.built() = sdpa(H, H_kv, d, d_v);
    plain.fake.table.num_declarations = plain.args.num_expression_tensors = 0;
    plain.args.has_window = plain.args.softcap = 0;
    plain.args.rope_cos = plain.args.rope_sin = plain.args.lse = plain.args.scores = plain.args.weights_mean = polyhead_tensor{};
    plain.built().num_heads = plain.built().num_kv_heads = plain.built().head_dim = plain.built().head_dim_v = 1;
    const auto long_call = [&](int64_t seq_len_q, int64_t seq_len_kv) { // one element, again and again: nothing is read
        plain.args.query = TensorView(plain.query.data(), DType::f32, {1, 1, seq_len_q, 1}, {0, 0, 0, 1});
        plain.args.key = plain.args.value = TensorView(plain.key.data(), DType::f32, {1, 1, seq_len_kv, 1}, {0, 0, 0, 1});
        plain.args.out = view(reinterpret_cast<float *>(uintptr_t(1) << 40), {1, 1, seq_len_q, 1});
    };
    long_call((1 << 29) + 1, 9);
    plain.accepted();
    plain.built().causal = POLYHEAD_BOTTOM_RIGHT;
    plain.refused(POLYHEAD_UNSUPPORTED, "seq_len_q: value 536870913, expected at most 2^29, because the kernel uses positions (causal, "
                                        "alibi, rope, position offsets, an expression)");
    long_call(9, (1 << 29) + 1);
    plain.refused(POLYHEAD_UNSUPPORTED, "seq_len_kv: value 536870913, expected at most 2^29, because the kernel uses positions "
                                        "(causal, alibi, rope, position offsets, an expression)");
    long_call(1 << 29, 1 << 29);
    plain.accepted();
    plain.built().causal = POLYHEAD_NOT_CAUSAL;
    long_call(9, (1 << 30) + 1);
    plain.refused(POLYHEAD_UNSUPPORTED, "seq_len_kv: value 1073741825, expected at most 2^30");
}

TEST_CASE("rules of features: numbers", "[runtime]") {
    FeatureCall call;
    SECTION("window") {
        call.args.window_left = -2;
        call.refused(POLYHEAD_BAD_VALUE, "window_left: value -2, a negative span, expected -1 (unbounded), 0 or more");
        call.args.window_left = 0;
        call.args.window_right = -7;
        call.refused(POLYHEAD_BAD_VALUE, "window_right: value -7, a negative span, expected -1 (unbounded), 0 or more");
        call.args.window_right = 0;
        call.accepted();
    }
    SECTION("softcap") {
        call.args.softcap = -1;
        call.refused(POLYHEAD_BAD_VALUE, "softcap: value -1, expected a number from 1e-37 to 1e38");
        call.args.softcap = std::numeric_limits<float>::infinity();
        call.refused(POLYHEAD_BAD_VALUE, "softcap: value inf, expected a number from 1e-37 to 1e38");
        call.args.softcap = std::numeric_limits<float>::quiet_NaN();
        call.refused(POLYHEAD_BAD_VALUE, "softcap: value nan, expected a number from 1e-37 to 1e38");
    }
    SECTION("alignment is for kernels that know positions") {
        call.args.alignment = POLYHEAD_TOP_LEFT;
        call.accepted();
        FeatureCall plain;
        plain.leave_out();
        plain.built() = sdpa(H, H_kv, d, d_v);
        plain.built().sinks = 1;
        plain.fake.table.num_declarations = plain.args.num_expression_tensors = plain.args.has_window = 0;
        plain.args.softcap = 0;
        plain.args.rope_cos = plain.args.rope_sin = plain.args.lse = plain.args.scores = plain.args.weights_mean = polyhead_tensor{};
        plain.accepted();
        plain.args.alignment = POLYHEAD_TOP_LEFT;
        plain.refused(POLYHEAD_BAD_VALUE,
                      "alignment: value 2, expected 0, because the kernel uses no positions (causal, window, alibi, rope)");
        plain.built().position_offsets = 1;
        plain.accepted();
    }
    SECTION("offsets") {
        call.offsets[1] = -(1 << 28);
        call.refused(POLYHEAD_BAD_VALUE,
                     "position_offsets: value -268435456 at index 1 of dimension 0, expected -134217728 to 134217728 (2^27)");
    }
    SECTION("positions") {
        call.positions_q[4] = 12;
        call.refused(POLYHEAD_BAD_VALUE, "positions_q: value 12 at index 1, 1, expected 0 to 11 (rows of rope_cos)");
        call.positions_q[4] = 11;
        call.positions_kv[9] = -1;
        call.refused(POLYHEAD_BAD_VALUE, "positions_kv: value -1 at index 1, 4, expected 0 to 11 (rows of rope_cos)");
    }
}

TEST_CASE("rules of features: rotary tables reach as far as positions that follow from lengths", "[runtime]") {
    FeatureCall call;
    const auto rows = [&](int64_t count) { call.args.rope_cos.shape[0] = call.args.rope_sin.shape[0] = count; };
    const std::string first = "rope_cos: extent ", middle = " of dimension 0, expected at least ";
    SECTION("keys") {
        call.args.positions_kv = polyhead_tensor{};
        rows(4);
        call.refused(POLYHEAD_WRONG_SHAPE, first + "4" + middle + "5: without positions_kv the last key is at position 4");
        call.lengths = {4, 2}; // the keys beyond are not used
        call.accepted();
        call.args.kv_lengths = polyhead_tensor{};
        call.refused(POLYHEAD_WRONG_SHAPE, first + "4" + middle + "5: without positions_kv the last key is at position 4");
    }
    SECTION("queries") {
        call.args.positions_q = polyhead_tensor{};
        rows(6); // 5 keys, the last query at 4, an offset of 2
        call.refused(POLYHEAD_WRONG_SHAPE, first + "6" + middle + "7: without positions_q the last query is at position 6");
        call.args.alignment = POLYHEAD_TOP_LEFT; // the last query at 2
        rows(5);
        call.accepted();
        rows(4);
        call.refused(POLYHEAD_WRONG_SHAPE, first + "4" + middle + "5: without positions_q the last query is at position 4");
    }
}

TEST_CASE("rules of features: expression tensors", "[runtime]") {
    FeatureCall call;
    SECTION("count") {
        call.args.num_expression_tensors = 2;
        call.refused(POLYHEAD_WRONG_OPERATION, "expression_tensors: 2 given, expected 3, which the kernel's expression declares");
        call.args.num_expression_tensors = 3;
        call.args.expression_tensors = nullptr;
        call.refused(POLYHEAD_NULL_POINTER, "expression_tensors: null pointer, expected an array of 3 tensors");
        call.fake.table.num_declarations = call.args.num_expression_tensors = 21;
        call.refused(POLYHEAD_UNSUPPORTED, "expression_tensors: the kernel declares 21, expected at most 20");
    }
    SECTION("missing, dtype, rank") {
        call.expression_tensors[2].dtype = POLYHEAD_F32;
        call.refused(POLYHEAD_WRONG_DTYPE, "kept: dtype f32, expected bool");
        call.expression_tensors[1] = view(call.threshold.data(), {1, 1});
        call.refused(POLYHEAD_WRONG_SHAPE, "threshold: rank 2, expected 1");
        call.expression_tensors[0] = TensorView();
        call.refused(POLYHEAD_NULL_POINTER, "table: missing, expected a tensor of rank 2");
    }
    SECTION("extents") {
        call.expression_tensors[2].shape[1] = 4;
        call.refused(POLYHEAD_WRONG_SHAPE, "kept: extent 4 of dimension 1, expected 5 as in key");
        call.expression_tensors[1].shape[0] = 2;
        call.refused(POLYHEAD_WRONG_SHAPE, "threshold: extent 2 of dimension 0, expected 1");
        call.expression_tensors[0].shape[1] = 0;
        call.refused(POLYHEAD_WRONG_SHAPE, "table: extent 0 of dimension 1, expected at least 1");
        call.expression_tensors[0].shape[0] = 2;
        call.refused(POLYHEAD_WRONG_SHAPE, "table: extent 2 of dimension 0, expected 1 or 4");
    }
    SECTION("a number of elements is exact") {
        call.declarations[0].extents[1] = 8;
        call.refused(POLYHEAD_WRONG_SHAPE, "table: extent 7 of dimension 1, expected 8");
        call.declarations[0].extents[1] = 7;
        call.accepted();
    }
    SECTION("stride") {
        call.expression_tensors[2].stride[1] = 2;
        call.refused(POLYHEAD_WRONG_STRIDE, "kept: stride 2 of dimension 1, expected 1");
    }
    SECTION("given to a kernel without an expression") {
        call.fake.table.num_declarations = 0;
        call.refused(POLYHEAD_WRONG_OPERATION, "expression_tensors: 3 given, expected 0, which the kernel's expression declares");
    }
}

TEST_CASE("rules of features: outputs share memory with nothing", "[runtime]") {
    FeatureCall call;
    std::vector<float> both(1000, untouched); // larger than any tensor, so that it does not reach another tensor in memory
    const auto shared = [&](polyhead_tensor *output, const std::string &name, polyhead_tensor *other, const std::string &other_name) {
        void *before[] = {output->data, other->data};
        output->data = both.data();
        other->data = both.data() + 1;
        call.refused(POLYHEAD_ALIASED, name + ": shares memory with " + other_name + ", expected memory of its own");
        output->data = before[0];
        other->data = before[1];
    };
    polyhead_args &a = call.args;
    call.additive_mask();
    shared(&a.scores, "scores", &a.query, "query");
    shared(&a.scores, "scores", &a.score_bias, "score_bias");
    shared(&a.scores, "scores", &a.rope_sin, "rope_sin");
    shared(&a.scores, "scores", &a.out, "out");
    shared(&a.weights_mean, "weights_mean", &a.scores, "scores");
    shared(&a.weights_mean, "weights_mean", &a.lse, "lse");
    shared(&a.weights_mean, "weights_mean", &call.expression_tensors[0], "table");
    shared(&a.out, "out", &a.mask, "mask");
    shared(&a.lse, "lse", &a.sinks, "sinks");
}

TEST_CASE("rules of features: addresses", "[runtime]") {
    FeatureCall call;
    SECTION("between two floats") {
        call.args.score_bias.data = reinterpret_cast<char *>(call.score_bias.data()) + 1;
        CHECK(std::string(call.fake.run(call.args).message).find("score_bias: address") == 0);
    }
    SECTION("bytes may lie anywhere") {
        call.args.mask = view_bool(call.boolean, {T_kv});
        call.args.mask.offset = 1;
        call.accepted();
    }
}
