// Every rule of a call: which code, which sentence, and that nothing was written and no kernel was started.
#include <limits>
#include <string>
#include <vector>

#include "runtime_calls.h"

using namespace polyhead;
using namespace polyhead::test;

TEST_CASE("runtime: a correct call passes", "[runtime]") {
    SdpaCall call;
    CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
    CHECK(call.fake.calls == 1);
    MhaCall layer(MhaCall::cross());
    CHECK(layer.fake.run(layer.args).code == POLYHEAD_OK);
    CHECK(layer.fake.calls == 1);
}

TEST_CASE("runtime: structs of another version", "[runtime]") {
    SdpaCall call;
    SECTION("arguments that were not begun by polyhead_args_of") {
        call.args.size = 0;
        call.refused(POLYHEAD_UNSUPPORTED, "arguments: polyhead_args of 0 bytes, expected " + std::to_string(sizeof(polyhead_args)) +
                                               ": begin them with polyhead_args_of() and compile with the headers of polyhead " +
                                               polyhead_version());
    }
    SECTION("a kernel of other headers") {
        call.fake.table.problem.size -= 4;
        const std::string sentence = "kernel fake: polyhead_problem of " + std::to_string(sizeof(polyhead_problem) - 4) +
                                     " bytes, expected " + std::to_string(sizeof(polyhead_problem)) + ": generate it with polyhead " +
                                     polyhead_version();
        call.refused(POLYHEAD_UNSUPPORTED, sentence);
        polyhead_weight_tensors tensors = polyhead_weight_tensors_of();
        CHECK(std::string(polyhead_pack(&call.fake.table, &tensors, nullptr, nullptr).message) == sentence);
        CHECK(polyhead_weights_bytes(&call.fake.table) == 0);
    }
}

TEST_CASE("runtime: value in key", "[runtime]") {
    SdpaCall call;
    call.fake.table.problem.value_in_key = 1;
    SECTION("a value is refused") {
        call.refused(POLYHEAD_WRONG_OPERATION, "value: given, expected none, because the kernel takes it from key (value_in_key)");
    }
    SECTION("without a value the kernel gets one tensor less") {
        call.args.value = polyhead_tensor{};
        call.fake.on_call = [&](FakeKernel &f) {
            CHECK(f.buffer(1).host == call.key.data());
            CHECK(f.buffer(2).host == call.lengths.data());
        };
        CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
        CHECK(call.fake.calls == 1);
    }
}

TEST_CASE("runtime: heads that are free at run time", "[runtime]") {
    SdpaCall call;
    Problem &p = call.fake.table.problem;
    p.group_size = p.num_heads / p.num_kv_heads;
    p.num_heads = p.num_kv_heads = 0;
    SECTION("as many as there are") {
        CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
        CHECK(call.fake.calls == 1);
    }
    SECTION("no heads at all") {
        for (polyhead_tensor *t : {&call.args.query, &call.args.key, &call.args.value, &call.args.out, &call.args.lse}) {
            t->shape[1] = 0;
        }
        CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
        CHECK(call.fake.calls == 0);
    }
    SECTION("not a multiple of the group") {
        p.group_size = 3;
        call.refused(POLYHEAD_WRONG_SHAPE,
                     "query: extent " + std::to_string(H) + " of dimension 1, expected a multiple of group_size 3, at most 65535");
    }
    SECTION("key heads that do not fit") {
        call.args.key.shape[1]--;
        call.refused(POLYHEAD_WRONG_SHAPE, "key: extent " + std::to_string(H_kv - 1) + " of dimension 1, expected " + std::to_string(H_kv));
    }
    SECTION("out of other heads") {
        call.args.out.shape[1]--;
        call.refused(POLYHEAD_WRONG_SHAPE,
                     "out: extent " + std::to_string(H - 1) + " of dimension 1, expected " + std::to_string(H) + " as in query");
    }
}

TEST_CASE("runtime: missing and null tensors", "[runtime]") {
    SdpaCall call;
    SECTION("absent key") {
        call.args.key = polyhead_tensor{};
        call.refused(POLYHEAD_NULL_POINTER, "key: missing, expected a tensor of rank 4");
    }
    SECTION("null value") {
        call.args.value.data = nullptr;
        call.refused(POLYHEAD_NULL_POINTER, "value: null pointer, expected the address of its elements");
    }
    SECTION("lse left out of a kernel built with it") {
        call.args.lse = polyhead_tensor{};
        call.refused(POLYHEAD_NULL_POINTER, "lse: missing, expected a tensor of rank 3");
    }
    SECTION("no arguments, no kernel") {
        CHECK(std::string(polyhead_run(nullptr, &call.args).message) == "kernel: null pointer, expected a kernel");
        CHECK(std::string(polyhead_run(&call.fake.table, nullptr).message) == "args: null pointer, expected arguments");
    }
    SECTION("kv_lengths may be absent") {
        call.args.kv_lengths = polyhead_tensor{};
        call.fake.on_call = [](FakeKernel &f) {
            CHECK(f.buffer(3).extents == std::vector<int32_t>{B});
            CHECK(f.buffer(3).strides == std::vector<int32_t>{0});
            CHECK(*static_cast<int32_t *>(f.buffer(3).host) == T_kv);
        };
        CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
    }
}

TEST_CASE("runtime: shapes", "[runtime]") {
    SdpaCall call;
    SECTION("rank") {
        call.args.query = view(call.query.data(), {B, T_q, d});
        call.refused(POLYHEAD_WRONG_SHAPE, "query: rank 3, expected 4");
    }
    SECTION("rank beyond what fits") {
        call.args.query = view(call.query.data(), {1, 1, 1, 1, 1, 1, 1});
        call.refused(POLYHEAD_WRONG_SHAPE, "query: rank 7, expected 4");
    }
    SECTION("head_dim") {
        call.args.query.shape[3] = 7;
        call.refused(POLYHEAD_WRONG_SHAPE, "query: extent 7 of dimension 3, expected 8");
    }
    SECTION("num_heads") {
        call.args.query.shape[1] = 3;
        call.refused(POLYHEAD_WRONG_SHAPE, "query: extent 3 of dimension 1, expected 4");
    }
    SECTION("num_kv_heads of value") {
        call.args.value.shape[1] = 1;
        call.refused(POLYHEAD_WRONG_SHAPE, "value: extent 1 of dimension 1, expected 2");
    }
    SECTION("batch of key") {
        call.args.key.shape[0] = 1;
        call.refused(POLYHEAD_WRONG_SHAPE, "key: extent 1 of dimension 0, expected 2 as in query");
    }
    SECTION("seq_len_kv of value") {
        call.args.value.shape[2] = 4;
        call.refused(POLYHEAD_WRONG_SHAPE, "value: extent 4 of dimension 2, expected 5 as in key");
    }
    SECTION("seq_len_q of out") {
        call.args.out.shape[2] = 2;
        call.refused(POLYHEAD_WRONG_SHAPE, "out: extent 2 of dimension 2, expected 3 as in query");
    }
    SECTION("lse") {
        call.args.lse.shape[2] = 4;
        call.refused(POLYHEAD_WRONG_SHAPE, "lse: extent 4 of dimension 2, expected 3 as in query");
    }
    SECTION("kv_lengths") {
        call.args.kv_lengths.shape[0] = 3;
        call.refused(POLYHEAD_WRONG_SHAPE, "kv_lengths: extent 3 of dimension 0, expected 2 as in query");
    }
    SECTION("negative") {
        call.args.query.shape[2] = -1;
        call.refused(POLYHEAD_WRONG_SHAPE, "query: extent -1 of dimension 2, expected 0 to 2147483647");
    }
    SECTION("absurd") {
        call.args.query.shape[0] = std::numeric_limits<int64_t>::max();
        call.refused(POLYHEAD_WRONG_SHAPE, "query: extent 9223372036854775807 of dimension 0, expected 0 to 2147483647");
    }
    SECTION("fixed lengths") {
        call.fake.table.problem.seq_len_q = 4;
        call.refused(POLYHEAD_WRONG_SHAPE, "query: extent 3 of dimension 2, expected 4");
        call.fake.table.problem.seq_len_q = 0;
        call.fake.table.problem.seq_len_kv = 7;
        call.refused(POLYHEAD_WRONG_SHAPE, "key: extent 5 of dimension 2, expected 7");
    }
}

TEST_CASE("runtime: strides", "[runtime]") {
    SdpaCall call;
    SECTION("innermost") {
        call.args.key.stride[3] = 2;
        call.refused(POLYHEAD_WRONG_STRIDE, "key: stride 2 of dimension 3, expected 1");
    }
    SECTION("innermost of lse") {
        call.args.lse.stride[2] = 4;
        call.refused(POLYHEAD_WRONG_STRIDE, "lse: stride 4 of dimension 2, expected 1");
    }
    SECTION("rows of out overlap") {
        call.args.out.stride[2] = 5;
        call.refused(POLYHEAD_WRONG_STRIDE, "out: stride 5 of dimension 2 makes elements overlap, expected at least 6");
    }
    SECTION("a broadcast out") {
        call.args.out.stride[0] = 0;
        call.refused(POLYHEAD_WRONG_STRIDE, "out: stride 0 of dimension 0 makes elements overlap, expected at least 1");
    }
    SECTION("too far") {
        call.args.query.stride[0] = int64_t(1) << 31;
        call.refused(POLYHEAD_WRONG_STRIDE,
                     "query: extent 2 with stride 2147483648 of dimension 0 reaches beyond 2^31 elements, expected less");
    }
    SECTION("too far in sum only") {
        call.args.query.stride[0] = int64_t(1) << 29;
        call.args.query.stride[1] = int64_t(3) << 27;
        call.args.query.stride[2] = int64_t(1) << 28;
        call.refused(POLYHEAD_WRONG_STRIDE,
                     "query: extent 3 with stride 268435456 of dimension 2 reaches beyond 2^31 elements, expected less");
    }
    SECTION("a stride that would overflow when multiplied") {
        call.args.query.stride[1] = std::numeric_limits<int64_t>::min();
        CHECK(call.fake.run(call.args).code == POLYHEAD_WRONG_STRIDE);
        CHECK(call.fake.calls == 0);
    }
    SECTION("more elements than an index counts, though a stride of 0 keeps them near") {
        Problem p = sdpa(1, 1, 1, 1);
        FakeKernel fake(p);
        call.args.query = view(call.query.data(), {65536, 1, 65536, 1}, {0, 0, 0, 1});
        call.args.kv_lengths = call.args.lse = polyhead_tensor{};
        CHECK(std::string(fake.run(call.args).message) == "query: 4294967296 elements (17179869184 bytes), expected fewer than 2^31: call "
                                                          "with some of the queries, heads or batch rows at "
                                                          "a time");
    }
}

TEST_CASE("runtime: addresses, and strides that are fine", "[runtime]") {
    SdpaCall call;
    SECTION("an address between two floats") {
        call.args.query.data = reinterpret_cast<char *>(call.query.data()) + 2;
        CHECK(std::string(call.fake.run(call.args).message).find("expected a multiple of 4, the bytes of one f32") != std::string::npos);
    }
    SECTION("broadcast inputs and any stride where the extent is 1 are fine") {
        call.args.key.stride[0] = call.args.key.stride[1] = call.args.query.stride[2] = 0;
        CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
        for (polyhead_tensor *t :
             {&call.args.query, &call.args.key, &call.args.value, &call.args.out, &call.args.lse, &call.args.kv_lengths}) {
            t->shape[0] = 1;
            t->stride[0] = int64_t(1) << 40;
        }
        call.fake.on_call = [](FakeKernel &f) { CHECK(f.buffer(0).strides == std::vector<int32_t>{1, 0, T_q * d, H * T_q * d}); };
        CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
    }
    SECTION("an out that runs backwards") {
        call.args.out.data = call.out.data() + H * T_q * d_v;
        call.args.out.stride[0] = -H * T_q * d_v;
        CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
    }
}

TEST_CASE("runtime: dtypes", "[runtime]") {
    SdpaCall call;
    SECTION("query") {
        call.args.query.dtype = POLYHEAD_BF16;
        call.refused(POLYHEAD_WRONG_DTYPE, "query: dtype bf16, expected f32");
    }
    SECTION("kv_lengths") {
        call.args.kv_lengths.dtype = POLYHEAD_F32;
        call.refused(POLYHEAD_WRONG_DTYPE, "kv_lengths: dtype f32, expected i32");
    }
    SECTION("a number that is no dtype") {
        call.args.out.dtype = 99;
        call.refused(POLYHEAD_WRONG_DTYPE, "out: dtype unknown, expected f32");
    }
}

TEST_CASE("runtime: aliasing", "[runtime]") {
    SdpaCall call;
    SECTION("out in query") {
        call.args.query.data = call.out.data();
        call.args.query.shape[0] = 1;
        call.args.query.stride[1] = 0; // reads only the first few elements of out
        for (polyhead_tensor *t : {&call.args.key, &call.args.value, &call.args.out, &call.args.lse, &call.args.kv_lengths}) {
            t->shape[0] = 1;
        }
        call.refused(POLYHEAD_ALIASED, "out: shares memory with query, expected memory of its own");
    }
    SECTION("the last element of value is the first of out") {
        std::vector<float> both(call.value.size() + call.out.size() - 1);
        call.args.value.data = both.data();
        call.args.out.data = both.data() + call.value.size() - 1;
        call.refused(POLYHEAD_ALIASED, "out: shares memory with value, expected memory of its own");
        call.args.value.data = both.data() + call.out.size() - 1;
        call.args.out.data = both.data();
        call.refused(POLYHEAD_ALIASED, "out: shares memory with value, expected memory of its own");
    }
    SECTION("neighbours are fine") {
        std::vector<float> both(call.value.size() + call.out.size());
        call.args.value.data = both.data();
        call.args.out.data = both.data() + call.value.size();
        CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
    }
    SECTION("lse in key, lse in out, lse in kv_lengths") {
        call.args.lse.data = call.key.data();
        call.refused(POLYHEAD_ALIASED, "lse: shares memory with key, expected memory of its own");
        call.args.lse.data = call.out.data() + 1;
        call.refused(POLYHEAD_ALIASED, "lse: shares memory with out, expected memory of its own");
        call.lengths.resize(call.lse.size()); // so that lse reaches over nothing else
        call.args.kv_lengths.data = call.args.lse.data = call.lengths.data();
        call.refused(POLYHEAD_ALIASED, "lse: shares memory with kv_lengths, expected memory of its own");
    }
    SECTION("out in the weights") {
        MhaCall layer;
        layer.args.out.data = const_cast<void *>(layer.weights.data);
        layer.refused(POLYHEAD_ALIASED, "out: shares memory with weights, expected memory of its own");
    }
    SECTION("query that runs backwards into out") {
        std::vector<float> both(call.query.size() + call.out.size());
        call.args.out.data = both.data();
        call.args.query.data = both.data() + H * T_q * d;
        call.args.query.stride[0] = -H * T_q * d;
        call.refused(POLYHEAD_ALIASED, "out: shares memory with query, expected memory of its own");
    }
}

TEST_CASE("runtime: values", "[runtime]") {
    SdpaCall call;
    SECTION("a key length beyond the keys") {
        call.lengths[1] = 6;
        call.refused(POLYHEAD_BAD_VALUE, "kv_lengths: value 6 at index 1 of dimension 0, expected 0 to 5 (seq_len_kv)");
    }
    SECTION("a negative key length") {
        call.lengths[0] = -1;
        call.refused(POLYHEAD_BAD_VALUE, "kv_lengths: value -1 at index 0 of dimension 0, expected 0 to 5 (seq_len_kv)");
    }
    SECTION("strided key lengths") {
        const int32_t pairs[] = {5, 99, 4, 99};
        call.args.kv_lengths = TensorView(const_cast<int32_t *>(pairs), DType::i32, {2}, {2});
        CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
    }
    SECTION("softmax_scale") {
        call.args.has_softmax_scale = 1;
        call.args.softmax_scale = std::numeric_limits<float>::infinity();
        call.refused(POLYHEAD_BAD_VALUE, "softmax_scale: value inf, expected a finite number below 2.3e38");
        call.args.softmax_scale = std::numeric_limits<float>::quiet_NaN();
        call.refused(POLYHEAD_BAD_VALUE, "softmax_scale: value nan, expected a finite number below 2.3e38");
        call.args.softmax_scale = 3e38f;
        call.refused(POLYHEAD_BAD_VALUE, "softmax_scale: value 3e+38, expected a finite number below 2.3e38");
        call.args.softmax_scale = -0.5f;
        CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
    }
    SECTION("alignment") {
        call.args.alignment = 3;
        call.refused(POLYHEAD_BAD_VALUE, "alignment: value 3, expected 0 (of the problem), 1 (bottom_right) or 2 (top_left)");
        call.args.alignment = POLYHEAD_TOP_LEFT;
        call.fake.table.problem.causal = POLYHEAD_NOT_CAUSAL;
        call.refused(POLYHEAD_BAD_VALUE,
                     "alignment: value 2, expected 0, because the kernel uses no positions (causal, window, alibi, rope)");
    }
}

TEST_CASE("runtime: another operation, and tensors the kernel was not built to take", "[runtime]") {
    SdpaCall call;
    MhaCall layer;
    SECTION("operation") {
        call.args.op = POLYHEAD_MHA;
        call.refused(POLYHEAD_WRONG_OPERATION, "arguments: of operation mha, expected sdpa, which kernel fake computes");
        call.args.op = 7;
        call.refused(POLYHEAD_WRONG_OPERATION, "arguments: of operation unknown, expected sdpa, which kernel fake computes");
    }
    SECTION("kv_lengths, lse") {
        call.fake.table.problem.kv_lengths = 0;
        call.refused(POLYHEAD_WRONG_OPERATION, "kv_lengths: given, expected none, because the kernel was built without key lengths");
        call.fake.table.problem.kv_lengths = 1;
        call.fake.table.problem.lse = 0;
        call.refused(POLYHEAD_WRONG_OPERATION, "lse: given, expected none, because the kernel was built without lse");
    }
    SECTION("weights for bare attention") {
        call.args.weights = &layer.weights;
        call.refused(POLYHEAD_WRONG_OPERATION, "weights: given, expected none, because the kernel computes sdpa");
    }
    SECTION("key for self-attention") {
        layer.args.key = view(layer.key.data(), {B, T_kv, 8});
        layer.refused(POLYHEAD_WRONG_OPERATION, "key: given, expected none, because the kernel is self-attention");
    }
    SECTION("value and scale for a linear layer") {
        MhaCall projection(linear(8, 8));
        projection.args.op = POLYHEAD_LINEAR;
        projection.args.query = view(projection.input.data(), {3, 8});
        projection.args.out = view(projection.out.data(), {3, 8});
        projection.args.has_softmax_scale = 1;
        projection.refused(POLYHEAD_WRONG_OPERATION, "softmax_scale: given, expected none, because the kernel is a linear layer");
        projection.args.value = view(projection.value.data(), {3, 8});
        projection.refused(POLYHEAD_WRONG_OPERATION, "value: given, expected none, because the kernel is a linear layer");
    }
}

TEST_CASE("runtime: empty calls", "[runtime]") {
    SdpaCall call;
    SECTION("no batch") {
        for (polyhead_tensor *t :
             {&call.args.query, &call.args.key, &call.args.value, &call.args.out, &call.args.lse, &call.args.kv_lengths}) {
            t->shape[0] = 0;
            t->data = nullptr;
        }
        CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
        CHECK(call.fake.calls == 0);
    }
    SECTION("no queries") {
        for (polyhead_tensor *t : {&call.args.query, &call.args.out, &call.args.lse}) {
            t->shape[2] = 0;
            t->data = nullptr;
        }
        CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
        CHECK(call.fake.calls == 0);
        call.args.key.shape[3] = 7; // still checked
        call.refused(POLYHEAD_WRONG_SHAPE, "key: extent 7 of dimension 3, expected 8");
    }
    SECTION("no keys: every row is an empty row, whatever the pointers and the strides of out") {
        call.lengths = {0, 0};
        for (polyhead_tensor *t : {&call.args.key, &call.args.value}) {
            t->shape[2] = 0;
            t->data = nullptr;
        }
        std::vector<float> wide(B * H * T_q * (d_v + 1), untouched); // rows one element apart
        call.args.out = view(wide.data(), {B, H, T_q, d_v}, {H * T_q * (d_v + 1), T_q * (d_v + 1), d_v + 1, 1});
        CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
        CHECK(call.fake.calls == 0);
        CHECK(call.lse == std::vector<float>(call.lse.size(), -std::numeric_limits<float>::infinity()));
        for (size_t i = 0; i < wide.size(); ++i) {
            CHECK(wide[i] == (i % (d_v + 1) == d_v ? untouched : 0.0f));
        }
    }
}
