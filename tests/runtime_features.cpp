// What a kernel with masks, modifiers and outputs is called with: the order of the table, spread dimensions, neutral elements, numbers.
#include <limits>

#include "runtime_features.h"

#include "../contract/tensors.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

using Ints = std::vector<int32_t>;
constexpr int first_optional = 3; // behind query, key and value

runtime::ElementType type_of(int32_t dtype) {
    using runtime::ElementType;
    return dtype == POLYHEAD_F32   ? ElementType{ElementType::real, 32, 1}
           : dtype == POLYHEAD_I32 ? ElementType{ElementType::signed_integer, 32, 1}
                                   : ElementType{ElementType::unsigned_integer, 8, 1};
}

// Where the entry has an argument: counted through the table.
int place_of(const Problem &problem, const std::string &name) {
    int place = first_optional;
    for (const contract::TensorRow &row : contract::tensors) {
        if (row.place == contract::Place::option && takes(problem, row)) {
            if (row.name == name) {
                return place;
            }
            ++place;
        }
    }
    place += 3; // the expression's
    for (const contract::NumberRow &row : contract::numbers) {
        if (takes(problem, row)) {
            if (row.name == name) {
                return place;
            }
            ++place;
        }
    }
    FAIL("no argument " << name);
    return -1;
}

void check_table_order(FakeKernel &f, const FeatureCall &call) {
    int at = first_optional;
    for (const contract::TensorRow &row : contract::tensors) {
        if (row.place == contract::Place::option && takes(f.table.problem, row)) {
            INFO(row.name);
            CHECK(f.buffer(at).host == (call.args.*row.tensor).data);
            CHECK(f.buffer(at).extents.size() == static_cast<size_t>(row.rank));
            CHECK(f.buffer(at).type == type_of(row.dtype(f.table.problem)));
            ++at;
        }
    }
    CHECK(f.buffer(at++).host == call.table.data());
    CHECK(f.buffer(at++).host == call.threshold.data());
    CHECK(f.buffer(at++).host == call.kept.data());
    at += 7; // numbers, which have a test of their own
    CHECK(f.buffer(at++).host == call.out.data());
    for (const contract::TensorRow &row : contract::tensors) {
        if (row.place == contract::Place::result && row.feature && takes(f.table.problem, row)) {
            INFO(row.name);
            CHECK(f.buffer(at).host == (call.args.*row.tensor).data);
            CHECK(f.buffer(at++).extents.size() == static_cast<size_t>(row.rank));
        }
    }
}

} // namespace

TEST_CASE("features: argv follows the table", "[runtime]") {
    FeatureCall call;
    call.fake.on_call = [&](FakeKernel &f) { check_table_order(f, call); };
    call.accepted();
    call.additive_mask();
    call.accepted();
    // The same after the weights of a layer.
    Problem p = mha(8, 2);
    p.mask = POLYHEAD_ADDITIVE_MASK;
    p.window = p.lse = 1;
    MhaCall layer(p);
    std::vector<float> mask(T_q * T_q), lse(B * 2 * T_q);
    layer.args.mask = view(mask.data(), {T_q, T_q});
    layer.args.lse = view(lse.data(), {B, 2, T_q});
    layer.fake.on_call = [&](FakeKernel &f) {
        CHECK(f.buffer(5).host == mask.data()); // input, four weights
        CHECK(f.scalar<int32_t>(7) == 1);       // softmax_scale, from_end, window_left, window_right
        CHECK(f.scalar<int32_t>(8) == contract::window_unbounded);
        CHECK(f.buffer(10).host == layer.out.data());
        CHECK(f.buffer(11).host == lse.data());
    };
    CHECK(layer.fake.run(layer.args).code == POLYHEAD_OK);
    CHECK(layer.fake.calls == 1);
}

TEST_CASE("features: shapes of the arguments", "[runtime]") {
    FeatureCall call;
    call.fake.on_call = [&](FakeKernel &f) {
        const auto of = [&](const char *name) { return f.buffer(place_of(f.table.problem, name)); };
        CHECK(of("mask").extents == Ints{T_kv, T_q, H, B});
        CHECK(of("mask").strides == Ints{1, T_kv, T_q * T_kv, H * T_q * T_kv});
        CHECK(of("score_bias").extents == Ints{T_kv, T_q, H, B});
        CHECK(of("score_bias").strides == Ints{1, T_kv, T_q * T_kv, 0}); // [H,T_q,T_kv] was given
        CHECK(of("alibi_slopes").extents == Ints{H, B});
        CHECK(of("alibi_slopes").strides == Ints{1, H});
        CHECK(of("sinks").extents == Ints{H});
        CHECK(of("rope_cos").extents == Ints{pairs, P});
        CHECK(of("positions_q").extents == Ints{T_q, B});
        CHECK(of("positions_kv").extents == Ints{T_kv, B});
        CHECK(of("head_gate").extents == Ints{H});
        const int expression = place_of(f.table.problem, "head_gate") + 1;
        CHECK(f.buffer(expression).extents == Ints{7, H});
        CHECK(f.buffer(expression + 1).extents == Ints{1}); // one number
        CHECK(f.buffer(expression + 2).extents == Ints{T_kv, B});
        const int out = expression + 3 + 7;
        CHECK(f.buffer(out + 1).extents == Ints{T_q, H, B});
        CHECK(f.buffer(out + 2).extents == Ints{T_kv, T_q, H, B});
        CHECK(f.buffer(out + 3).extents == Ints{T_kv, T_q, B});
    };
    call.accepted();
}

TEST_CASE("features: broadcast masks are spread, not copied", "[runtime]") {
    FeatureCall call;
    std::vector<int32_t> extents, strides;
    const void *host = nullptr;
    call.fake.on_call = [&](FakeKernel &f) {
        const SeenBuffer mask = f.buffer(place_of(f.table.problem, "mask"));
        extents = mask.extents;
        strides = mask.strides;
        host = mask.host;
    };
    const auto given = [&](std::initializer_list<int64_t> shape) {
        call.args.mask = view_bool(call.boolean, shape);
        call.accepted();
        CHECK(host == call.boolean.data());
    };
    given({T_kv});
    CHECK(extents == Ints{T_kv, T_q, H, B});
    CHECK(strides == Ints{1, 0, 0, 0});
    given({1, T_kv});
    CHECK(strides == Ints{1, 0, 0, 0});
    given({T_q, T_kv});
    CHECK(strides == Ints{1, T_kv, 0, 0});
    given({B, 1, 1, T_kv});
    CHECK(strides == Ints{1, 0, 0, T_kv});
    given({1, H, T_q, T_kv});
    CHECK(strides == Ints{1, T_kv, T_q * T_kv, 0});
    SECTION("built for one element over queries") {
        call.built().mask_broadcast = POLYHEAD_BROADCAST_Q;
        given({B, 1, 1, T_kv});
        CHECK(extents == Ints{T_kv, 1, H, B});
        CHECK((strides[0] == 1 && strides[2] == 0 && strides[3] == T_kv));
    }
    SECTION("built for one element over keys") {
        call.built().mask_broadcast = POLYHEAD_BROADCAST_KV;
        given({B, 1, T_q, 1});
        CHECK(extents == Ints{1, T_q, H, B});
        CHECK(strides == Ints{1, 1, 0, T_q});
    }
    SECTION("a mask that the caller spread itself") {
        call.args.mask = view_bool(call.boolean, {B, H, T_q, T_kv});
        call.args.mask.stride[0] = call.args.mask.stride[2] = 0;
        call.accepted();
        CHECK(strides == Ints{1, 0, T_q * T_kv, 0});
    }
    SECTION("slopes of heads for every batch row, an expression tensor with one element") {
        call.args.alibi_slopes = view(call.slopes.data(), {H});
        call.expression_tensors[0] = view(call.table.data(), {1, 7});
        call.expression_tensors[2] = view_bool(call.kept, {1, T_kv});
        call.fake.on_call = [](FakeKernel &f) {
            CHECK(f.buffer(place_of(f.table.problem, "alibi_slopes")).strides == Ints{1, 0});
            const int expression = place_of(f.table.problem, "head_gate") + 1;
            CHECK(f.buffer(expression).extents == Ints{7, H});
            CHECK(f.buffer(expression).strides == Ints{1, 0});
            CHECK(f.buffer(expression + 2).extents == Ints{T_kv, B});
            CHECK(f.buffer(expression + 2).strides == Ints{1, 0});
        };
        call.accepted();
    }
}

TEST_CASE("features: a mask over keys that is left out is a row of neutral elements", "[runtime]") {
    FeatureCall call;
    call.leave_out();
    call.built().mask_broadcast = 0;
    call.built().score_bias_broadcast = POLYHEAD_BROADCAST_Q;
    const auto bytes = [&] { return polyhead_scratch_bytes(&call.fake.table, &call.args, nullptr); };
    constexpr int64_t unit = 128; // each row begins at a multiple of it
    CHECK(bytes() == held_scratch(0, 0, polyhead_num_threads() - 1) + 2 * unit);
    call.fake.on_call = [&](FakeKernel &f) {
        const SeenBuffer mask = f.buffer(place_of(f.table.problem, "mask")), bias = f.buffer(place_of(f.table.problem, "score_bias"));
        CHECK(mask.extents == Ints{T_kv, T_q, H, B});
        CHECK(mask.strides == Ints{1, 0, 0, 0});
        CHECK(bias.extents == Ints{T_kv, 1, H, B});
        CHECK((bias.strides[0] == 1 && bias.strides[2] == 0 && bias.strides[3] == 0));
        const auto *seen = static_cast<const uint8_t *>(mask.host);
        const auto *added = static_cast<const float *>(bias.host);
        if (f.table.problem.mask == POLYHEAD_BOOLEAN_MASK) {
            CHECK(std::vector<uint8_t>(seen, seen + T_kv) == std::vector<uint8_t>(T_kv, 1));
        } else {
            CHECK(std::vector<uint8_t>(seen, seen + 4 * T_kv) == std::vector<uint8_t>(4 * T_kv, 0));
        }
        CHECK(std::vector<float>(added, added + T_kv) == std::vector<float>(T_kv, 0.0f));
    };
    call.accepted();
    call.built().mask = POLYHEAD_ADDITIVE_MASK;
    call.accepted();
    CHECK(bytes() == held_scratch(0, 0, polyhead_num_threads() - 1) + 2 * unit);
    call.args.score_bias = view(call.score_bias.data(), {1, T_kv});
    CHECK(bytes() == held_scratch(0, 0, polyhead_num_threads() - 1) + unit);
}

TEST_CASE("features: what is left out is a neutral element", "[runtime]") {
    FeatureCall call;
    call.leave_out();
    const auto check = [](FakeKernel &f, const char *name, auto neutral, size_t spread_from) {
        const SeenBuffer seen = f.buffer(place_of(f.table.problem, name));
        INFO(name);
        CHECK(*static_cast<const decltype(neutral) *>(seen.host) == neutral);
        for (size_t i = spread_from; i < seen.strides.size(); ++i) {
            CHECK(seen.strides[i] == 0);
        }
    };
    call.fake.on_call = [&](FakeKernel &f) {
        check(f, "kv_lengths", int32_t(T_kv), 0);
        check(f, "position_offsets", int32_t(0), 0);
        f.table.problem.mask == POLYHEAD_BOOLEAN_MASK ? check(f, "mask", uint8_t(1), 1) : check(f, "mask", 0.0f, 1);
        CHECK(f.buffer(place_of(f.table.problem, "mask")).extents == Ints{1, T_q, H, B});
        check(f, "score_bias", 0.0f, 1);
        check(f, "alibi_slopes", 0.0f, 0);
        check(f, "sinks", -std::numeric_limits<float>::infinity(), 0);
        check(f, "positions_q", int32_t(0), 0);
        check(f, "positions_kv", int32_t(0), 0);
        check(f, "head_gate", 1.0f, 0);
        CHECK(f.scalar<int32_t>(place_of(f.table.problem, "position_step_q")) == 1);
        CHECK(f.scalar<int32_t>(place_of(f.table.problem, "position_step_kv")) == 1);
    };
    call.accepted();
    call.built().mask = POLYHEAD_ADDITIVE_MASK;
    call.accepted();
}

TEST_CASE("features: numbers", "[runtime]") {
    FeatureCall call;
    const auto number = [&](const char *name) {
        int32_t value = -9;
        call.fake.on_call = [&](FakeKernel &f) { value = f.scalar<int32_t>(place_of(f.table.problem, name)); };
        call.accepted();
        return value;
    };
    SECTION("window") {
        CHECK(number("window_left") == 2);
        CHECK(number("window_right") == contract::window_unbounded);
        call.args.window_right = 0;
        CHECK(number("window_right") == 0);
        call.args.window_left = std::numeric_limits<int32_t>::max();
        CHECK(number("window_left") == contract::window_unbounded);
        call.args.has_window = 0;
        CHECK(number("window_right") == contract::window_unbounded);
    }
    SECTION("a causal kernel never looks beyond the position") {
        call.built().causal = POLYHEAD_TOP_LEFT;
        call.args.window_right = 7;
        CHECK(number("window_right") == 0);
        call.args.has_window = 0;
        CHECK(number("window_right") == 0);
        CHECK(number("window_left") == contract::window_unbounded);
        CHECK(number("from_end") == 0);
    }
    SECTION("alignment of a kernel that is not causal") {
        CHECK(number("from_end") == 1);
        call.args.alignment = POLYHEAD_TOP_LEFT;
        CHECK(number("from_end") == 0);
    }
    SECTION("softcap, steps of positions that were given") {
        call.fake.on_call = [](FakeKernel &f) {
            CHECK(f.scalar<float>(place_of(f.table.problem, "softcap")) == 30.0f);
            CHECK(f.scalar<int32_t>(place_of(f.table.problem, "position_step_q")) == 0);
            CHECK(f.scalar<int32_t>(place_of(f.table.problem, "position_step_kv")) == 0);
        };
        call.accepted();
    }
}

TEST_CASE("features: from C++", "[runtime]") {
    FeatureCall call;
    SdpaArgs args;
    static_cast<polyhead_tensor &>(args.query) = call.args.query;
    static_cast<polyhead_tensor &>(args.key) = call.args.key;
    static_cast<polyhead_tensor &>(args.value) = call.args.value;
    static_cast<polyhead_tensor &>(args.out) = call.args.out;
    const std::pair<TensorView AttentionArgs::*, polyhead_tensor polyhead_args::*> members[] = {
        {&AttentionArgs::kv_lengths, &polyhead_args::kv_lengths},
        {&AttentionArgs::position_offsets, &polyhead_args::position_offsets},
        {&AttentionArgs::mask, &polyhead_args::mask},
        {&AttentionArgs::score_bias, &polyhead_args::score_bias},
        {&AttentionArgs::alibi_slopes, &polyhead_args::alibi_slopes},
        {&AttentionArgs::sinks, &polyhead_args::sinks},
        {&AttentionArgs::rope_cos, &polyhead_args::rope_cos},
        {&AttentionArgs::rope_sin, &polyhead_args::rope_sin},
        {&AttentionArgs::positions_q, &polyhead_args::positions_q},
        {&AttentionArgs::positions_kv, &polyhead_args::positions_kv},
        {&AttentionArgs::head_gate, &polyhead_args::head_gate}};
    const std::pair<MutableTensorView AttentionArgs::*, polyhead_tensor polyhead_args::*> outputs[] = {
        {&AttentionArgs::lse, &polyhead_args::lse},
        {&AttentionArgs::scores, &polyhead_args::scores},
        {&AttentionArgs::weights_mean, &polyhead_args::weights_mean}};
    for (const auto &[mine, theirs] : members) {
        static_cast<polyhead_tensor &>(args.*mine) = call.args.*theirs;
    }
    for (const auto &[mine, theirs] : outputs) {
        static_cast<polyhead_tensor &>(args.*mine) = call.args.*theirs;
    }
    args.softcap = 30;
    args.window = AttentionArgs::Window{4, 1};
    args.expression_tensors = call.expression_tensors.data();
    args.num_expression_tensors = 3;
    call.fake.on_call = [&](FakeKernel &f) {
        check_table_order(f, call);
        CHECK(f.scalar<int32_t>(place_of(f.table.problem, "window_left")) == 4);
        CHECK(f.scalar<int32_t>(place_of(f.table.problem, "window_right")) == 1);
        CHECK(f.scalar<float>(place_of(f.table.problem, "softcap")) == 30.0f);
    };
    const Status status = call.fake.kernel().run(args);
    INFO(status.message());
    CHECK(status.ok());
    CHECK(call.fake.calls == 1);
}

TEST_CASE("features: explain names them", "[runtime]") {
    FeatureCall call;
    char text[1024];
    CHECK(polyhead_explain(&call.fake.table, &call.args, text, sizeof text).code == POLYHEAD_OK);
    CHECK(
        std::string(text).find("\n  with window, softcap, key lengths, position offsets, mask, score bias, alibi, sinks, rope, head gate, "
                               "expression, lse, scores, weights_mean\n") != std::string::npos);
}

TEST_CASE("features: no keys", "[runtime]") {
    FeatureCall call;
    call.lengths = {0, 0};
    for (polyhead_tensor *t : {&call.args.key, &call.args.value}) {
        t->shape[2] = 0;
    }
    call.args.mask.shape[3] = call.args.score_bias.shape[2] = call.args.positions_kv.shape[1] = 0;
    call.expression_tensors[2].shape[1] = call.args.scores.shape[3] = call.args.weights_mean.shape[2] = 0;
    call.args.scores.stride[3] = call.args.weights_mean.stride[2] = 7; // of rows without elements: it means nothing
    const polyhead_status status = call.fake.run(call.args);
    INFO(status.message);
    CHECK(status.code == POLYHEAD_OK);
    CHECK(call.fake.calls == 0);
    CHECK(call.out == std::vector<float>(call.out.size(), 0.0f));
    CHECK(call.lse == std::vector<float>(call.lse.size(), -std::numeric_limits<float>::infinity()));
    CHECK(call.scores == std::vector<float>(call.scores.size(), untouched)); // empty
    CHECK(call.weights_mean == std::vector<float>(call.weights_mean.size(), untouched));
}
