// Traps of Halide 21 on GPUs. Of each: a small pipeline that falls into it, which may stop doing so with a better Halide and then says
// so, and checks that fail when our kernels fall into it.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <regex>

#include <Halide.h>

#include "compile/compile.h"
#include "instruments/calls/compiled_kernel.h"

#include "instruments/calls/problems.h"
#include "support/catch.h"
#include "support/check.h"
#include "support/device.h"
#include "support/shapes.h"
#include "support/sweep.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

constexpr int threads = 64;

Halide::Target opencl() {
    return Halide::get_host_target().with_feature(Halide::Target::OpenCL);
}

Halide::Buffer<float> counting() {
    Halide::Buffer<float> in(threads);
    in.fill([](int i) { return static_cast<float>(i + 1); });
    return in;
}

// A block of threads adds up four rounds. In each, `sum` reads its neighbour of `tile`, and `twice` one of `sum`; all in shared memory.
// tile is made once outside of the rounds, or in each. Returns how many results are wrong.
int wrong_with_shared_tile(bool made_outside) {
    using namespace Halide;
    constexpr int rounds = 4;
    const Buffer<float> in = counting();
    Var x("x"), step("step"), block("block"), thread("thread");
    RDom r(0, rounds, "r");
    Func tile("tile"), sum("sum"), twice("twice"), acc("acc"), out("out");
    tile(x) = in(clamp(x, 0, threads - 1));
    sum(x, step) = tile((x + 1) % threads) + cast<float>(step);
    twice(x, step) = 2.0f * sum((x + 3) % threads, step);
    acc(x) = 0.0f;
    acc(x) += twice((x + 7) % threads, r);
    out(x) = acc(x);
    out.bound(x, 0, threads).gpu_tile(x, block, thread, threads);
    acc.compute_at(out, block).store_in(MemoryType::GPUShared).gpu_threads(x);
    acc.update().reorder(x, r).gpu_threads(x);
    for (Func *f : {&sum, &twice, &tile}) {
        f->store_in(MemoryType::GPUShared).gpu_threads(x);
        f->compute_at(f == &tile && made_outside ? LoopLevel(out, block) : LoopLevel(acc, r));
    }
    Buffer<float> got = out.realize({threads}, opencl());
    got.copy_to_host();
    int wrong = 0;
    for (int i = 0; i < threads; i++) {
        float expected = 0;
        for (int s = 0; s < rounds; s++) {
            expected += 2.0f * (in((i + 11) % threads) + static_cast<float>(s));
        }
        wrong += got(i) != expected;
    }
    return wrong;
}

// A Func of a block in registers, read by other threads than the one that made it.
int wrong_with_block_register() {
    using namespace Halide;
    const Buffer<float> in = counting();
    Var x("x"), block("block"), thread("thread");
    Func made("made"), out("out");
    made(x) = in(clamp(x, 0, threads - 1)) * 2.0f;
    out(x) = made(threads - 1 - x);
    out.bound(x, 0, threads).gpu_tile(x, block, thread, threads);
    made.compute_at(out, block).store_in(MemoryType::Register).gpu_threads(x);
    Buffer<float> got = out.realize({threads}, opencl());
    got.copy_to_host();
    int wrong = 0;
    for (int i = 0; i < threads; i++) {
        wrong += got(i) != 2.0f * in(threads - 1 - i);
    }
    return wrong;
}

std::string read_file(const std::string &path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// A folder that is removed at the end of the test.
class TempFolder {
public:
    TempFolder() { REQUIRE(mkdtemp(path_.data()) != nullptr); }
    ~TempFolder() {
        std::remove(file().c_str());
        rmdir(path_.c_str());
    }
    std::string file() const { return path_ + "/code.o"; }

private:
    std::string path_ = (std::getenv("TMPDIR") != nullptr ? std::getenv("TMPDIR") : std::string("/tmp")) + "/polyhead-traps-XXXXXX";
};

// Loads bf16 as Halide's own type on a device and stores f32.
void compile_bf16_pipeline(const std::string &target, const std::string &path) {
    Halide::Var x("x"), block("block"), thread("thread");
    Halide::ImageParam in(Halide::BFloat(16), 1, "in");
    Halide::Func out("out");
    out(x) = Halide::cast<float>(in(x));
    out.gpu_tile(x, block, thread, threads);
    out.compile_to_object(path, {in}, "bf16_trap", Halide::Target(target));
}

// Ends the child that compiles when Halide aborts. Nothing is printed.
bool bf16_aborts_for_cuda() {
    const TempFolder folder;
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        std::signal(SIGABRT, SIG_DFL); // not Catch2's handler
        alarm(120);
        if (std::freopen("/dev/null", "w", stderr) == nullptr) {
            _exit(2);
        }
        try {
            compile_bf16_pipeline("x86-64-linux-cuda-cuda_capability_80-no_runtime", folder.file());
        } catch (const std::exception &) {
            _exit(1);
        }
        _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) || WEXITSTATUS(status) != 0;
}

// The component that is stored second must not see the first one's new value.
bool tuple_of_extern_calls_is_right() {
    using namespace Halide;
    Var x("x");
    Func pair("pair"), out("out");
    const auto fma = [&](float factor) {
        return Internal::Call::make(Float(32), "fmaf", {pair(x)[0], Expr(factor), pair(x)[1]}, Internal::Call::PureExtern);
    };
    pair(x) = Tuple(1.0f, 2.0f);
    pair(x) = Tuple(fma(2.0f), fma(3.0f));
    pair.compute_root();
    out(x) = Tuple(pair(x)[0], pair(x)[1]);
    const Realization got = out.realize({4});
    const Buffer<float> first = got[0], second = got[1];
    return first(0) == 4.0f && second(0) == 5.0f;
}

// Grouped heads with every mask and lse, and a layer, whose projections are linear frames. Both reach all GPU frames.
std::vector<Problem> problems() {
    Problem attention = sdpa_problem(4, 128, 2), layer = mha_problem(48, 3);
    attention.causal = POLYHEAD_BOTTOM_RIGHT;
    attention.kv_lengths = attention.lse = 1;
    layer.bias = 1;
    return {attention, layer};
}

// The text of all device code in the objects of one kernel.
std::string device_code(const Problem &given, const std::string &target) {
    Problem problem = given;
    std::string error = gen::complete(&problem), text;
    REQUIRE(error == "");
    const std::vector<gen::VariantPlan> plans = gen::plan_variants(problem, {target}, "", &error);
    REQUIRE(error == "");
    CHECK(!plans.empty());
    for (const gen::VariantPlan &plan : plans) {
        const TempFolder folder;
        gen::compile_variant(problem, plan, "trap", folder.file(), {}, false, &error);
        REQUIRE(error == "");
        text += read_file(folder.file());
    }
    return text;
}

// Answers with as many chunks of keys as a serial loop needs to show a tile that was overwritten, and with logits far apart, so that
// most steps rescale what came before.
void check_many_chunks(const Problem &problem, const std::string &tiling) {
    const CompiledKernel compiled(problem, {"host-opencl", tiling, "trap"});
    INFO(generate_line(problem) << " --target host-opencl --tiling '" << tiling << "'");
    REQUIRE(compiled.error() == "");
    for (const polyhead_kernel &forced : forced_variants(compiled.kernel(), TestDevice::get())) {
        const KernelSubject subject(forced, 51, false, TestDevice::get().raw());
        for (Values values : {Values::normal, Values::peaked, Values::extreme_logits}) {
            if (values == Values::extreme_logits && !is_sdpa(problem)) {
                continue;
            }
            Shape shape = plain_shape(problem, 1, 150, 400, 52);
            shape.values = values;
            if (serves(forced, shape.seq_len_q)) {
                CHECK(check_answer(subject.subject(), shape) == "");
            }
        }
    }
}

} // namespace

TEST_CASE("traps: a shared tile made outside of a serial loop is overwritten") {
    CHECK(wrong_with_shared_tile(false) == 0); // what our schedules do
    if (wrong_with_shared_tile(true) == 0) {
        WARN("Halide no longer gives the memory of a shared Func away while a serial loop still needs it");
    }
}

TEST_CASE("traps: a Func of a block in registers is read by other threads") {
    if (wrong_with_block_register() == 0) {
        WARN("Halide no longer lets every thread read its own copy of a block's registers");
    }
}

TEST_CASE("traps: kernels with several chunks of keys are right in every frame") {
    INFO(TestDevice::get().error());
    REQUIRE(TestDevice::get().raw() != nullptr);
    const std::vector<Problem> all = problems();
    for (const int number : rotating_numbers(0, 2 * static_cast<int>(all.size()), 2)) { // PoCL compiles each for ten seconds
        check_many_chunks(all[static_cast<size_t>(number / 2)], number % 2 == 0 ? "frame=thread_rows" : "frame=block_tiles");
    }
}

TEST_CASE("traps: bf16 is half for OpenCL and ends the compiler for CUDA") {
    const TempFolder folder;
    compile_bf16_pipeline("x86-64-linux-opencl-cl_half-no_runtime", folder.file());
    const std::string code = read_file(folder.file());
    REQUIRE(code.find("_at_least_one_kernel(int x)") != std::string::npos);
    if (code.find("const half *", code.find("_at_least_one_kernel(int x)")) == std::string::npos) {
        WARN("Halide no longer takes bf16 for half in OpenCL");
    }
    if (!bf16_aborts_for_cuda()) {
        WARN("Halide no longer ends the compiler over bf16 for CUDA");
    }
}

TEST_CASE("traps: bf16 kernels hold no type of 16-bit floating point") {
    const std::regex half_type("\\bhalf[0-9]*\\b"), bf16_type("\\.(f16|bf16)(x2)?\\b");
    for (Problem problem : problems()) {
        problem.dtype = POLYHEAD_BF16;
        INFO(generate_line(problem));
        const std::string source = device_code(problem, "x86-64-linux-opencl"),
                          ptx = device_code(problem, "x86-64-linux-cuda-cuda_capability_80");
        REQUIRE(source.find("__kernel") != std::string::npos);
        CHECK(!std::regex_search(source.substr(source.find("_at_least_one_kernel")), half_type));
        REQUIRE(ptx.find(".visible .entry") != std::string::npos);
        // Instructions that are written in place of calls, and not by Halide, take pairs of bf16 as words.
        const std::regex written("(mma\\.sync|cvt\\.rn\\.bf16x2)[^;]*;");
        CHECK(!std::regex_search(std::regex_replace(ptx.substr(ptx.find(".visible .entry")), written, ""), bf16_type));
    }
}

TEST_CASE("traps: kernels for heads up to 128 keep nothing in local memory") {
    for (const Problem &problem : problems()) {
        INFO(generate_line(problem));
        const std::string ptx = device_code(problem, "x86-64-linux-cuda-cuda_capability_80");
        REQUIRE(ptx.find(".visible .entry") != std::string::npos);
        CHECK(ptx.find("ld.local") == std::string::npos);
        CHECK(ptx.find("st.local") == std::string::npos);
        CHECK(ptx.find(".local .align") == std::string::npos);
    }
}

TEST_CASE("traps: a Tuple of extern calls sees what it has just stored") {
    if (tuple_of_extern_calls_is_right()) {
        WARN("Halide no longer stores one component of a Tuple before it computes the next");
    }
}
