// Plans: a kernel sees the same with a plan as without, whatever may change from call to call; and calls of another form are refused.
#include <string>
#include <thread>
#include <vector>

#include "../contract/tensors.h"
#include "../contract/weight_layout.h"
#include "failing_system.h"
#include "runtime_features.h"
#include "scratch_memory.h"
#include "support/catch.h"
#include "support/environment.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// What the entry got: buffers, and numbers by their bits. A neutral element is known by its bits, a tensor by its address.
struct Arguments {
    std::vector<std::vector<int64_t>> buffers;
    std::vector<uint32_t> numbers;
    bool operator==(const Arguments &other) const { return buffers == other.buffers && numbers == other.numbers; }
};

template <typename T> T bits_at(const void *from) {
    T bits;
    std::memcpy(&bits, from, sizeof bits);
    return bits;
}

Arguments arguments_of(const FakeKernel &fake, const polyhead_args &args) {
    using namespace contract;
    Arguments all;
    const Problem problem = with_defaults(fake.table.problem);
    const TensorSet taken = taken_by(problem);
    int next = 0;
    const auto add_buffer = [&](bool given) {
        const auto &buffer = *static_cast<const runtime::KernelBuffer *>(fake.argv[next++]);
        std::vector<int64_t> seen = {given ? reinterpret_cast<int64_t>(buffer.host) : bits_at<int32_t>(buffer.host), buffer.type.code,
                                     buffer.type.bits, buffer.dimensions};
        for (int i = 0; i < buffer.dimensions; ++i) {
            seen.insert(seen.end(), {buffer.dim[i].min, buffer.dim[i].extent, buffer.dim[i].stride});
        }
        all.buffers.push_back(seen);
    };
    const auto add_rows = [&](const TensorSet &rows) {
        for (const TensorRow &row : taken &rows) {
            const polyhead_tensor &tensor = args.*row.tensor;
            add_buffer(tensor.rank != 0 || tensor.data);
        }
    };
    add_rows(operand_rows);
    for (int pass = 0; has_weights(problem) && pass < 1 + problem.bias; ++pass) {
        for (const WeightRow &row : weight_rows) {
            if (takes(problem, row)) {
                add_buffer(true);
            }
        }
    }
    add_rows(option_rows);
    for (int i = 0; i < fake.table.num_declarations; ++i) {
        add_buffer(true);
    }
    for (const NumberRow &row : numbers) {
        if (takes(problem, row)) {
            all.numbers.push_back(bits_at<uint32_t>(fake.argv[next++]));
        }
    }
    add_rows(result_rows);
    return all;
}

// The call with and without a plan of another call of its form.
template <class FakeCall> void check_same(FakeCall &planned, FakeCall &call) {
    polyhead_plan *plan = nullptr;
    REQUIRE(std::string(polyhead_make_plan(&call.fake.table, &planned.args, &plan).message).empty());
    // The plan keeps nothing of these.
    for (const contract::TensorRow &row : contract::tensors) {
        (planned.args.*row.tensor).data = nullptr;
    }
    planned.args.weights = nullptr;
    Arguments seen[2];
    for (const bool with_plan : {false, true}) {
        call.args.plan = with_plan ? plan : nullptr;
        call.fake.calls = 0;
        call.fake.on_call = [&](FakeKernel &f) { seen[with_plan] = arguments_of(f, call.args); };
        CHECK(std::string(call.fake.run(call.args).message) == "");
        CHECK(call.fake.calls == 1);
    }
    CHECK(!seen[0].buffers.empty());
    CHECK(seen[0] == seen[1]);
    polyhead_free_plan(plan);
}

// A kernel that `call` has, with the memory of another call.
template <class FakeCall> void check_same_of(FakeCall &&planned, FakeCall &&call) {
    check_same(planned, call);
}

struct PlannedCall : SdpaCall {
    PlannedCall() {
        REQUIRE(std::string(polyhead_make_plan(&fake.table, &args, &plan).message).empty());
        args.plan = plan;
    }
    ~PlannedCall() { polyhead_free_plan(plan); }
    polyhead_plan *plan = nullptr;
};

struct LinearCall {
    LinearCall() {
        args.query = view(input.data(), {5, 10});
        args.weights = &weights;
        args.out = view(out.data(), {5, 20});
    }
    FakeKernel fake{linear(10, 20)};
    std::vector<float> input = std::vector<float>(50), out = std::vector<float>(100, untouched);
    alignas(64) float memory[512] = {};
    polyhead_weights weights{
        memory, polyhead_weights_bytes(&fake.table), contract::weight_layout_id(fake.table.problem), POLYHEAD_WEIGHT_PANEL, POLYHEAD_F32,
        nullptr};
    polyhead_args args = polyhead_args_of(POLYHEAD_LINEAR);
};

} // namespace

TEST_CASE("plan: a kernel sees the same with a plan as without", "[runtime]") {
    SECTION("attention with key lengths") {
        SdpaCall planned, call;
        call.lengths = {3, 2};
        check_same(planned, call);
    }
    SECTION("every feature") {
        FeatureCall planned, call;
        call.args.softcap = 7;
        call.args.has_softmax_scale = 1;
        call.args.softmax_scale = 0.3f;
        check_same(planned, call);
    }
    SECTION("what may be left out is left out") {
        FeatureCall planned, call;
        planned.leave_out();
        call.leave_out();
        check_same(planned, call);
    }
    SECTION("rows of neutral elements") {
        FeatureCall planned, call;
        for (FeatureCall *one : {&planned, &call}) {
            one->leave_out();
            one->built().mask_broadcast = one->built().score_bias_broadcast = 0;
        }
        polyhead_plan *plan = nullptr;
        REQUIRE(polyhead_make_plan(&call.fake.table, &planned.args, &plan).code == POLYHEAD_OK);
        call.args.plan = plan;
        call.accepted();
        polyhead_free_plan(plan);
    }
    SECTION("a layer") {
        MhaCall planned(MhaCall::cross()), call(MhaCall::cross());
        planned.args.kv_lengths = call.args.kv_lengths = {};
        check_same(planned, call);
    }
    SECTION("a linear layer") {
        LinearCall planned, call;
        check_same(planned, call);
    }
}

TEST_CASE("plan: a kernel sees the same where addresses and numbers alone may change", "[runtime]") {
    FeatureCall planned, call;
    planned.args.kv_lengths = call.args.kv_lengths = {};
    SECTION("the same window") {}
    SECTION("another window") {
        call.args.window_left = 1;
        call.args.window_right = 0;
    }
    SECTION("no window") {
        call.args.has_window = 0;
    }
    SECTION("the other alignment") {
        call.args.alignment = POLYHEAD_TOP_LEFT;
    }
    SECTION("other numbers") {
        call.args.softcap = 7;
        call.args.has_softmax_scale = 1;
        call.args.softmax_scale = 0.3f;
    }
    SECTION("tensors that begin elsewhere") {
        call.key.resize(call.key.size() + 8);
        call.args.key.data = call.key.data() + 8;
        call.args.query.offset = 4;
        call.query.resize(call.query.size() + 4);
        call.args.query.data = call.query.data();
    }
    check_same(planned, call);
}

TEST_CASE("plan: a larger window takes more memory than that of the plan", "[runtime]") {
    FeatureCall call;
    call.args.kv_lengths = {};
    call.fake.variant.scratch.terms[0] = {100000, 0, 1, 1}; // for each key in the windows
    call.args.window_left = call.args.window_right = 0;
    polyhead_plan *plan = nullptr;
    REQUIRE(polyhead_make_plan(&call.fake.table, &call.args, &plan).code == POLYHEAD_OK);
    call.args.plan = plan;
    const int64_t small = polyhead_scratch_bytes(&call.fake.table, &call.args, nullptr);
    const ScratchMemory scratch(small);
    call.args.scratch = scratch.get();
    call.args.scratch_bytes = scratch.bytes();
    call.accepted();
    call.args.window_left = 1;
    call.args.scratch_bytes = 0;
    call.args.scratch = nullptr;
    const int64_t large = polyhead_scratch_bytes(&call.fake.table, &call.args, nullptr);
    CHECK(large > small + B * 99000);
    call.args.scratch = scratch.get();
    call.args.scratch_bytes = scratch.bytes();
    call.refused(POLYHEAD_BAD_VALUE, "scratch: " + std::to_string(small) + " bytes, expected " + std::to_string(large));
    polyhead_free_plan(plan);
}

TEST_CASE("plan: a call of another form is refused", "[runtime]") {
    PlannedCall call;
    SECTION("the same form") {
        CHECK(std::string(call.fake.run(call.args).message).empty());
    }
    SECTION("an extent") {
        call.args.key.shape[2] = call.args.value.shape[2] = T_kv - 1;
        call.refused(POLYHEAD_WRONG_SHAPE, "key: extent 4 of dimension 2, expected 5, as in the plan");
    }
    SECTION("a stride") {
        call.args.value.stride[1] = 0;
        call.refused(POLYHEAD_WRONG_STRIDE, "value: stride 0 of dimension 1, expected 30, as in the plan");
    }
    SECTION("a rank") {
        call.args.kv_lengths.rank = 2;
        call.refused(POLYHEAD_WRONG_SHAPE, "kv_lengths: rank 2, expected 1, as in the plan");
    }
    SECTION("a type") {
        call.args.out.dtype = POLYHEAD_BF16;
        call.refused(POLYHEAD_WRONG_DTYPE, "out: dtype bf16, expected f32, as in the plan");
    }
    SECTION("a tensor is missing") {
        call.args.kv_lengths = {};
        call.refused(POLYHEAD_WRONG_OPERATION, "kv_lengths: missing, expected a tensor: the plan was made so");
    }
    SECTION("a tensor is given") {
        PlannedCall without;
        polyhead_free_plan(without.plan);
        without.args.plan = nullptr;
        without.args.kv_lengths = {};
        REQUIRE(polyhead_make_plan(&without.fake.table, &without.args, &without.plan).code == POLYHEAD_OK);
        without.args.plan = without.plan;
        without.args.kv_lengths = view(without.lengths.data(), {B});
        without.refused(POLYHEAD_WRONG_OPERATION, "kv_lengths: given, expected none: the plan was made so");
    }
    SECTION("a tensor that the kernel does not take") {
        call.args.sinks = view(call.out.data(), {H});
        call.refused(POLYHEAD_WRONG_OPERATION, "sinks: given, expected none, because the kernel was built without sinks");
    }
    SECTION("expression tensors") {
        call.args.num_expression_tensors = 1;
        call.refused(POLYHEAD_WRONG_OPERATION, "expression_tensors: 1 given, expected 0, which the kernel's expression declares");
    }
    SECTION("another operation") {
        call.args.op = POLYHEAD_LINEAR;
        call.refused(POLYHEAD_WRONG_OPERATION, "arguments: of operation linear, expected sdpa, which kernel fake computes");
    }
}

TEST_CASE("plan: what may change from call to call is checked", "[runtime]") {
    PlannedCall call;
    SECTION("a null pointer") {
        call.args.query.data = nullptr;
        call.refused(POLYHEAD_NULL_POINTER, "query: null pointer, expected the address of its elements");
    }
    SECTION("an address between elements") {
        call.args.query.data = reinterpret_cast<char *>(call.query.data()) + 2;
        const polyhead_status status = call.fake.run(call.args);
        CHECK(status.code == POLYHEAD_WRONG_STRIDE);
        CHECK(std::string(status.message).find("query: address ") == 0);
    }
    SECTION("an output in another tensor") {
        call.args.out.data = call.query.data();
        const polyhead_status status = call.fake.run(call.args);
        CHECK(std::string(status.message) == "out: shares memory with query, expected memory of its own");
    }
    SECTION("scratch memory in a tensor") {
        alignas(128) char scratch[1 << 16] = {};
        call.args.scratch = scratch;
        call.args.scratch_bytes = sizeof scratch;
        CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
        call.fake.calls = 0;
        call.args.lse.data = scratch + 64;
        CHECK(std::string(call.fake.run(call.args).message) == "scratch: shares memory with lse, expected memory of its own");
    }
    SECTION("a key length") {
        call.lengths[1] = 6;
        call.refused(POLYHEAD_BAD_VALUE, "kv_lengths: value 6 at index 1 of dimension 0, expected 0 to 5 (seq_len_kv)");
    }
    SECTION("a number") {
        call.args.softcap = 3;
        call.refused(POLYHEAD_WRONG_OPERATION, "softcap: given, expected none, because the kernel was built without softcap");
    }
}

TEST_CASE("plan: it is for one kernel", "[runtime]") {
    PlannedCall call;
    SECTION("another kernel") {
        SdpaCall other;
        other.args.plan = call.plan;
        other.refused(POLYHEAD_WRONG_OPERATION, "plan: made for another kernel, expected a plan of the kernel that is run");
    }
    SECTION("another kernel in the place of the planned one") {
        const Entry entry([](void **) { return 0; });
        call.fake.variant.entry = entry.function();
        call.refused(POLYHEAD_WRONG_OPERATION, "plan: made for another kernel, expected a plan of the kernel that is run");
    }
    SECTION("a kernel with one variant more") {
        const polyhead_variant variants[] = {call.fake.variant, call.fake.variant};
        call.fake.table.variants = variants;
        call.fake.table.num_variants = 2;
        call.refused(POLYHEAD_WRONG_OPERATION, "plan: made for another kernel, expected a plan of the kernel that is run");
    }
    SECTION("a copy of the table") {
        const polyhead_variant variant = call.fake.variant;
        polyhead_kernel copy = call.fake.table;
        copy.variants = &variant;
        CHECK(std::string(polyhead_run(&copy, &call.args).message).empty());
        CHECK(call.fake.calls == 1);
    }
    SECTION("no plan") {
        const std::vector<char> nothing(1 << 16);
        call.args.plan = reinterpret_cast<const polyhead_plan *>(nothing.data());
        call.refused(POLYHEAD_BAD_VALUE, "plan: not a plan, or freed, expected one of polyhead_make_plan()");
    }
}

TEST_CASE("plan: weights are held to their form", "[runtime]") {
    LinearCall call;
    polyhead_plan *plan = nullptr;
    REQUIRE(polyhead_make_plan(&call.fake.table, &call.args, &plan).code == POLYHEAD_OK);
    call.args.plan = plan;
    SECTION("none") {
        call.args.weights = nullptr;
        CHECK(std::string(call.fake.run(call.args).message) == "weights: missing, expected the packed weights of kernel fake");
    }
    SECTION("another layout") {
        ++call.weights.layout;
        CHECK(call.fake.run(call.args).code == POLYHEAD_WRONG_WEIGHTS);
    }
    SECTION("where the output is") {
        call.weights.data = reinterpret_cast<const void *>((reinterpret_cast<uintptr_t>(call.memory) + 128) / 64 * 64);
        call.args.out.data = call.memory + 64;
        CHECK(std::string(call.fake.run(call.args).message) == "out: shares memory with weights, expected memory of its own");
    }
    CHECK(call.fake.calls == 0);
    polyhead_free_plan(plan);
}

TEST_CASE("plan: what cannot be planned is refused", "[runtime]") {
    SdpaCall call;
    polyhead_plan *plan = reinterpret_cast<polyhead_plan *>(&call);
    CHECK(std::string(polyhead_make_plan(&call.fake.table, &call.args, nullptr).message) ==
          "plan: null pointer, expected where the plan goes");
    CHECK(std::string(polyhead_make_plan(nullptr, &call.args, &plan).message) == "kernel: null pointer, expected a kernel");
    CHECK(plan == nullptr);
    call.args.key.shape[3] = d + 1;
    CHECK(polyhead_make_plan(&call.fake.table, &call.args, &plan).code == POLYHEAD_WRONG_SHAPE);
    CHECK(plan == nullptr);
    call.args.key.shape[3] = d;
    {
        const Failing memory(Resource::memory, 1);
        CHECK(polyhead_make_plan(&call.fake.table, &call.args, &plan).code == POLYHEAD_OUT_OF_MEMORY);
    }
    polyhead_free_plan(nullptr);
    Plan of_cpp;
    CHECK(call.fake.kernel().plan(call.args, &of_cpp).ok());
    CHECK(of_cpp.raw() != nullptr);
    CHECK(call.fake.kernel().plan(call.args, nullptr).code() == POLYHEAD_NULL_POINTER);
}

TEST_CASE("plan: a variant that can no longer run is not run", "[runtime]") {
    SdpaCall call;
    call.args.kv_lengths = {};
    call.fake.variant.cpu_features = polyhead_cpu_features() & -polyhead_cpu_features();
    polyhead_plan *plan = nullptr;
    REQUIRE(polyhead_make_plan(&call.fake.table, &call.args, &plan).code == POLYHEAD_OK);
    call.args.plan = plan;
    CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
    call.fake.calls = 0;
    {
        const FeatureLimit limit(0);
        CHECK(call.fake.run(call.args).code == POLYHEAD_UNSUPPORTED);
        CHECK(call.fake.calls == 0);
    }
    CHECK(call.fake.run(call.args).code == POLYHEAD_OK);
    polyhead_free_plan(plan);
}

TEST_CASE("plan: threads use one at the same time", "[runtime]") {
    PlannedCall call;
    polyhead_args form = call.args;
    form.kv_lengths = {};
    form.plan = nullptr;
    polyhead_plan *plan = nullptr;
    REQUIRE(polyhead_make_plan(&call.fake.table, &form, &plan).code == POLYHEAD_OK);
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            std::vector<float> out(call.out.size()), lse(call.lse.size());
            polyhead_args own = form;
            own.plan = plan;
            own.out.data = out.data();
            own.lse.data = lse.data();
            for (int n = 0; n < 500; ++n) {
                wrong += call.fake.run(own).code != POLYHEAD_OK;
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    CHECK(wrong == 0);
    CHECK(call.fake.calls == 4 * 500);
    polyhead_free_plan(plan);
}

TEST_CASE("plan: packed tokens, with other lengths of sequences", "[runtime]") {
    ThreeTokens call;
    polyhead_plan *plan = nullptr;
    REQUIRE(polyhead_make_plan(&call.fake.table, &call.args, &plan).code == POLYHEAD_OK);
    call.args.plan = plan;
    CHECK(std::string(call.fake.run(call.args).message).empty());
    call.begins = {0, 1, 2, 3};
    CHECK(std::string(call.fake.run(call.args).message).empty());
    call.begins = {0, 2, 1, 3};
    CHECK(std::string(call.fake.run(call.args).message) == "cu_seqlens_q: value 1 at index 2, expected at least 2, the value before it");
    polyhead_free_plan(plan);
}
