// The random sweeps on a device: random problems in every storage type, the first rows of the matrix of features in a frame of their own,
// and random tilings, compiled by the test, each over random shapes, against the reference. Quick tier: a few chosen by
// POLYHEAD_SWEEP_SEED. POLYHEAD_TEST_ALL=1: many more. POLYHEAD_SWEEP_ONLY=<number> repeats one problem of each sweep.

#include "instruments/calls/compiled_kernel.h"
#include "plan/knob_rules.h"
#include "plan/plan.h"
#include "plan/target.h"

#include "instruments/calls/problems.h"
#include "random_tiling.h"
#include "support/device.h"
#include "support/feature_matrix.h"
#include "support/random_problem.h"
#include "support/sweep.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

constexpr int quick_problems = 6, all_problems = 24, shapes_per_problem = 6;
constexpr int quick_rows = 2, shapes_per_row = 10; // of each half of the matrix of features, one on each device
constexpr int quick_tilings = 1, all_tilings = 40;

Problem random_gpu_problem(Random &random) {
    Problem p = random_problem(random);
    p.dtype = random.pick(std::vector<int32_t>{POLYHEAD_F32, POLYHEAD_F32, POLYHEAD_F16, POLYHEAD_BF16});
    p.dtype = TestDevice::get().api() == Api::vulkan ? POLYHEAD_F32 : p.dtype; // has no 16-bit storage
    return p;
}

std::string target() {
    const Api api = TestDevice::get().api();
    return api == Api::cuda ? "host-cuda-cuda_capability_80" : api == Api::vulkan ? "host-vulkan" : "host-opencl";
}

// The frame that would be taken, or one of the two.
std::string random_frame(const Problem &p, Random &random) {
    return is_linear(p) ? "" : random.pick(std::vector<std::string>{"", "frame=thread_rows", "frame=block_tiles"});
}

// Large heads do not fit into the registers of the threads of a row.
bool is_served(Problem p, const std::string &tiling) {
    std::string error = gen::complete(&p);
    return error.empty() && !gen::plan_variants(p, {target()}, tiling, &error).empty();
}

// Returns the number of shapes.
int sweep_variant(const polyhead_kernel &forced, uint64_t seed, int shapes, double *worst) {
    const Problem &p = call_problem(forced);
    Random random(seed ^ 0x736861706573u);
    const KernelSubject subject(forced, seed, random.chance(40), TestDevice::get().raw());
    INFO("pack: " << subject.pack_status().message);
    REQUIRE(subject.pack_status().code == POLYHEAD_OK);
    int checked = 0;
    for (int i = 0; i < shapes; i++) {
        const Shape shape = sweep_shape(p, i, seed, random);
        if (serves(forced, shape.seq_len_q)) {
            CHECK(check_answer(subject.subject(), fitting(shape, forced), worst, 3e7) == "");
            checked++;
        }
    }
    const Shape shape = same_bits_shape(p, seed);
    if (serves(forced, shape.seq_len_q)) {
        CHECK(check_same_bits(subject.subject(), shape) == "");
        checked++;
    }
    return checked;
}

void sweep_compiled(const std::string &name, int number, const Problem &p, uint64_t seed, int shapes, const std::string &tiling) {
    const std::string line = generate_line(p) + " --target " + target() + (tiling.empty() ? "" : " --tiling '" + tiling + "'");
    INFO(line);
    const CompiledKernel compiled(p, {target(), tiling, "gpu_sweep_" + std::to_string(number)});
    REQUIRE(compiled.error() == "");
    double worst = 0;
    int checked = 0;
    for (const polyhead_kernel &forced : forced_variants(compiled.kernel(), TestDevice::get())) {
        checked += sweep_variant(forced, seed, shapes, &worst);
    }
    CHECK(checked > 0);
    print_swept(name, number, checked, worst, line);
}

void sweep_problem(const std::string &name, int number, const Problem &p, uint64_t seed, int shapes, Random &random) {
    const std::string tiling = random_frame(p, random);
    sweep_compiled(name, number, p, seed, shapes, is_served(p, tiling) ? tiling : "");
}

void sweep_rows(int begin, int end, int sample) {
    INFO(TestDevice::get().error());
    REQUIRE(TestDevice::get().raw() != nullptr);
    for_each_of_sweep("gpu/features/", in_turn(rotating_numbers(begin, end, sample)), [](int number, uint64_t seed) {
        Random random(seed);
        sweep_problem("gpu features", number, feature_problem(feature_rows()[static_cast<size_t>(number)]), seed, shapes_per_row, random);
    });
}

void sweep_tilings(const std::string &frame) {
    INFO(TestDevice::get().error());
    REQUIRE(TestDevice::get().raw() != nullptr);
    const gen::Machine machine = gen::machine_of(gen::parsed_target(target()));
    for_each_of_sweep("gpu/tilings/" + frame + "/", rotating_numbers(0, all_tilings, quick_tilings), [&](int number, uint64_t seed) {
        Random random(seed);
        Problem p = tiled_problem(frame, random);
        if (frame == "block_tiles" && TestDevice::get().api() == Api::opencl) {
            p.window = 0; // PoCL 3.1 runs barriers under a condition wrongly: docs/guides/gpu.md
        }
        REQUIRE(gen::complete(&p) == "");
        const std::string tiling = random_tiling(frame, p, machine, random);
        INFO(generate_line(p));
        REQUIRE(!tiling.empty());
        sweep_compiled("gpu tilings", number, p, seed, shapes_per_problem, tiling);
    });
}

} // namespace

TEST_CASE("gpu sweep: tilings of thread rows") {
    sweep_tilings("thread_rows");
}

TEST_CASE("gpu sweep: tilings of block tiles") {
    sweep_tilings("block_tiles");
}

TEST_CASE("gpu sweep: tilings of linear layers") {
    sweep_tilings("linear");
}

TEST_CASE("gpu sweep: random problems over random shapes") {
    INFO(TestDevice::get().error());
    REQUIRE(TestDevice::get().raw() != nullptr);
    for_each_of_sweep("gpu/", in_turn(first_numbers(sweep_count(quick_problems, all_problems))), [](int number, uint64_t seed) {
        Random random(seed);
        const Problem p = random_gpu_problem(random);
        sweep_problem("gpu sweep", number, p, seed, shapes_per_problem, random);
    });
}

TEST_CASE("gpu sweep: fixed lengths shorter than a chunk of keys") {
    INFO(TestDevice::get().error());
    REQUIRE(TestDevice::get().raw() != nullptr);
    Problem p = sdpa_problem(2, 8);
    p.causal = POLYHEAD_BOTTOM_RIGHT;
    p.kv_lengths = 1;
    for (const auto &[seq_len_kv, frame] : {std::pair(1, "thread_rows"), std::pair(3, "thread_rows"), std::pair(7, "block_tiles")}) {
        p.seq_len_kv = seq_len_kv;
        sweep_compiled("gpu short", seq_len_kv, p, static_cast<uint64_t>(seq_len_kv), shapes_per_problem, std::string("frame=") + frame);
    }
}

TEST_CASE("gpu sweep: the matrix of features, first half") {
    sweep_rows(0, rows_with_every_setting / 2, quick_rows);
}

TEST_CASE("gpu sweep: the matrix of features, second half") {
    sweep_rows(rows_with_every_setting / 2, rows_with_every_setting, quick_rows);
}

// A bias that all keys share is ready before the loop over keys that adds up probs, and not in the loop that makes weights.
TEST_CASE("gpu sweep: weights add up to 1 beside a bias of all keys") {
    INFO(TestDevice::get().error());
    REQUIRE(TestDevice::get().raw() != nullptr);
    Problem p = sdpa_problem(4, 16, 2);
    p.score_bias = 1;
    p.score_bias_broadcast = POLYHEAD_BROADCAST_Q | POLYHEAD_BROADCAST_KV;
    p.weights_mean = 1;
    constexpr uint64_t seed = 5;
    sweep_compiled("gpu weights", 0, p, seed, 40, "");
}
