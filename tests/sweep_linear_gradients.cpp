// Gradients of linear layers: random problems compiled by the test, each over random numbers of rows, held to the float64 reference, with
// the same bits for 1 and 2 threads and inside of its memory; and what is refused. Quick tier: two problems, which rotate with
// POLYHEAD_SWEEP_SEED. POLYHEAD_TEST_ALL=1: every second of 48. POLYHEAD_SWEEP_ONLY=<number> repeats one.
#include <limits>
#include <memory>

#include "contract/weight_layout.h"
#include "instruments/calls/linear_gradient_call.h"
#include "support/sweep_compiled.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

constexpr int problems = 48, problems_of_quick_tier = 2;
constexpr double most_products = 4e7; // of one evaluation of the reference, over all shapes of a problem

const std::vector<std::string> gradient_targets = {
    "host", "host", "x86-64-linux-avx2-fma-f16c-avx-sse41", "x86-64-linux-avx2-fma-f16c-avx-sse41", "x86-64-linux-sse41", "x86-64-linux",
};
const std::vector<int> awkward_widths = {1, 3, 8, 16, 17, 48, 64, 100, 129, 257, 768, 769};
const std::vector<int64_t> awkward_rows = {1, 2, 3, 7, 8, 17, 63, 64, 65, 100, 127, 128, 129, 255, 256, 257, 300, 513, 769};

Problem random_layer(Random &random) {
    Problem p = linear_problem(random.pick(awkward_widths), random.pick(awkward_widths));
    p.op = POLYHEAD_LINEAR_BACKWARD;
    p.bias = random.chance(50);
    p.dtype = random.chance(50) ? POLYHEAD_F32 : random.chance(50) ? POLYHEAD_BF16 : POLYHEAD_F16;
    p.f32_weights = p.dtype != POLYHEAD_F32 && random.chance(40);
    p.seq_len_q = random.chance(20) ? static_cast<int32_t>(random.pick(awkward_rows)) : 0;
    return p;
}

void sweep_layer(int number, uint64_t seed) {
    Random random(seed);
    const Problem p = random_layer(random);
    const std::string target = random.pick(gradient_targets);
    compile_in_sweep("linear_gradients", number, p, target, [&](const CompiledKernel &compiled, const std::string &line) {
        double worst = 0, products = 0;
        int shapes = 0;
        for (; products < most_products && shapes < 16; shapes++) {
            const LinearGradientShape shape{p.seq_len_q > 0 ? p.seq_len_q : random.pick(awkward_rows), random.chance(40),
                                            random.pick(std::vector<Place>{Place::inside, Place::at_end, Place::at_begin}), random.bits()};
            products += static_cast<double>(shape.rows) * p.embed_dim * p.out_features;
            CHECK(check_linear_gradients(compiled.kernel(), shape, &worst) == "");
            CHECK(check_threads_of_linear_gradients(compiled.kernel(), shape) == "");
        }
        print_swept("linear_gradients", number, shapes, worst, line);
    });
}

Problem small_layer(bool bias) {
    Problem p = linear_problem(5, 7);
    p.op = POLYHEAD_LINEAR_BACKWARD;
    p.bias = bias;
    return p;
}

// The refusal of a call; it must not write anything.
std::string refused(const Kernel &kernel, LinearGradientCall &call) {
    const Status status = kernel.run(call.args());
    CHECK(!status.ok());
    CHECK(call.outputs_untouched());
    return status.message();
}

} // namespace

TEST_CASE("gradients of linear layers: random problems") {
    for_each_of_sweep("linear_gradients/", rotating_numbers(0, problems, problems_of_quick_tier), sweep_layer);
}

TEST_CASE("gradients of linear layers: tilings") {
    const std::vector<std::string> tilings = {
        "linear_rows=1 linear_panels=1 linear_block=1 row_block=8",
        "linear_rows=5 linear_panels=2 linear_block=7 row_block=24 reduction_block=8",
        "linear_rows=14 linear_panels=2 linear_block=64 row_block=1000",
        "linear_rows=6 linear_panels=5 linear_block=65536 row_block=65536",
        "unscheduled=1",
    };
    for_each_of_sweep(
        "linear_gradients_tilings/", rotating_numbers(0, static_cast<int>(tilings.size()), 1), [&](int number, uint64_t seed) {
            Random random(seed);
            Problem p = linear_problem(random.pick(std::vector<int>{5, 50, 96}), random.pick(std::vector<int>{7, 33, 80}));
            p.op = POLYHEAD_LINEAR_BACKWARD;
            p.bias = 1;
            const std::string &tiling = tilings[static_cast<size_t>(number)];
            INFO(generate_line(p) << " --tiling '" << tiling << "'");
            const CompiledKernel compiled(p, {"host", tiling, "linear_gradients_tiling"});
            REQUIRE(compiled.error() == "");
            double worst = 0;
            for (const int64_t rows : {1, 23, 24, 25, 130}) {
                CHECK(check_linear_gradients(compiled.kernel(), {rows, true, Place::at_end, random.bits()}, &worst) == "");
                CHECK(check_threads_of_linear_gradients(compiled.kernel(), {rows, false, Place::at_end, random.bits()}) == "");
            }
        });
}

TEST_CASE("gradients of linear layers: without rows the gradients of weight and bias are 0") {
    Problem p = small_layer(true);
    p.dtype = GENERATE(int(POLYHEAD_F32), int(POLYHEAD_BF16));
    const CompiledKernel compiled(p, {"host", "", "no_rows"});
    REQUIRE(compiled.error() == "");
    LinearGradientCall call(p, {0, true, Place::at_end, 1});
    REQUIRE(compiled.kernel().run(call.args()).ok());
    CHECK(call.unwritten() == "");
    for (const std::vector<float> &output : read_outputs(call.args())) {
        CHECK(std::all_of(output.begin(), output.end(), [](float x) { return x == 0.0f && !std::signbit(x); }));
    }
    CHECK(compiled.kernel().explain(call.args()).find("gradients are 0") != std::string::npos);
    CHECK(call.gaps_untouched());
}

TEST_CASE("gradients of linear layers: NaN reaches what it is multiplied with, and nothing else") {
    const Problem p = small_layer(true);
    const CompiledKernel compiled(p, {"host", "", "nan"});
    REQUIRE(compiled.error() == "");
    LinearGradientCall call(p, {40, false, Place::inside, 1});
    std::vector<float> input = read_view(call.args().query);
    constexpr size_t row = 33, column = 4;
    input[row * 5 + column] = std::numeric_limits<float>::quiet_NaN();
    call.args().query = view(input.data(), {40, 5});
    REQUIRE(compiled.kernel().run(call.args()).ok());
    const std::vector<float> weight = read_view(call.args().grad_weight), of_input = read_view(call.args().grad_input);
    for (size_t i = 0; i < weight.size(); i++) {
        CHECK(std::isnan(weight[i]) == (i % 5 == column));
    }
    CHECK(std::none_of(of_input.begin(), of_input.end(), [](float x) { return std::isnan(x); }));
}

TEST_CASE("gradients of linear layers: wrong arguments are refused, and nothing is written") {
    const CompiledKernel with(small_layer(true), {"host", "", "with_bias"}), without(small_layer(false), {"host", "", "without_bias"});
    REQUIRE(with.error() + without.error() == "");
    const auto sentence = [](const CompiledKernel &compiled, const auto &change) {
        LinearGradientCall call(compiled.kernel().problem, {9, false, Place::inside, 1});
        change(call.args());
        return refused(compiled.kernel(), call);
    };
    using Args = polyhead_args;
    CHECK(sentence(with, [](Args &a) { a.grad_bias = polyhead_tensor{}; }).rfind("grad_bias: missing", 0) == 0);
    CHECK(sentence(with, [](Args &a) { a.weight = polyhead_tensor{}; }).rfind("weight: missing", 0) == 0);
    CHECK(sentence(with, [](Args &a) { a.grad_weight.data = nullptr; }).rfind("grad_weight: ", 0) == 0);
    CHECK(sentence(with, [](Args &a) { a.grad_out.shape[0] = 8; }) == "grad_out: extent 8 of dimension 0, expected 9 as in input");
    CHECK(sentence(with, [](Args &a) { a.weight.shape[1] = 4; }) == "weight: extent 4 of dimension 1, expected 5");
    CHECK(sentence(with, [](Args &a) { a.grad_input.dtype = POLYHEAD_BF16; }).rfind("grad_input: dtype bf16", 0) == 0);
    CHECK(sentence(with, [](Args &a) { a.grad_weight.stride[1] = 2; }).rfind("grad_weight: stride 2", 0) == 0);
    CHECK(sentence(with, [](Args &a) { a.grad_weight = a.weight; }).find("shares memory with weight") != std::string::npos);
    CHECK(sentence(with, [](Args &a) { a.grad_input.stride[0] = 0; }).rfind("grad_input: ", 0) == 0);
    CHECK(sentence(with, [](Args &a) { a.op = POLYHEAD_LINEAR; }).rfind("arguments: of operation linear, expected linear_backward", 0) ==
          0);
    CHECK(sentence(with, [](Args &a) { a.out = a.grad_input; }).rfind("out: given", 0) == 0);
    CHECK(sentence(without, [](Args &a) { a.grad_bias = a.grad_weight; }).rfind("grad_bias: given", 0) == 0);
}

TEST_CASE("gradients of linear layers: rows beyond one piece of memory are refused, and not computed in parts") {
    constexpr int64_t rows = int64_t(1) << 25; // their panels take 2^31 bytes
    Problem p = small_layer(false);
    p.embed_dim = p.out_features = 1;
    const CompiledKernel compiled(p, {"host", "", "many_rows"});
    REQUIRE(compiled.error() == "");
    float one = 1, weight = 1, grad_weight = 0;
    const std::unique_ptr<float[]> grad_input(new float[rows]); // no element of it is used
    LinearBackwardArgs args;
    args.input = args.grad_out = TensorView(&one, DType::f32, {rows, 1}, {0, 1});
    args.weight = view(&weight, {1, 1});
    args.grad_input = view(grad_input.get(), {rows, 1});
    args.grad_weight = view(&grad_weight, {1, 1});
    const Status status = compiled.kernel().run(args);
    CHECK(status.code() == POLYHEAD_UNSUPPORTED);
    CHECK(std::string(status.message()).find("some of the rows at a time") != std::string::npos);
}

TEST_CASE("gradients of linear layers: a device that is no CPU, and tiles, are refused by name") {
    const CompiledKernel compiled(small_layer(false), {"host-cuda-cuda_capability_80", "", "on_cuda"});
    CHECK(compiled.error().find("op linear_backward is not supported on target ") == 0);
    CHECK(compiled.error().find("expected a CPU") != std::string::npos);
    const CompiledKernel tiles(small_layer(false), {"host", "amx=1", "tiles"});
    CHECK(tiles.error() == "tiling: amx 1 is not for gradients");
}
