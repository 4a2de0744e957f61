// The random sweep on a device: random problems in every storage type, compiled in process in a frame of their own, each over
// random shapes, against the reference. Quick tier: a few problems chosen by POLYHEAD_SWEEP_SEED. POLYHEAD_TEST_ALL=1: many more.
// POLYHEAD_SWEEP_ONLY=<number> repeats one problem of the sweep.
#include <cstdio>

#include <Halide.h>

#include "generators/compile.h"
#include "in_process.h"

#include "support/catch.h"
#include "support/check.h"
#include "support/device.h"
#include "support/environment.h"
#include "support/problems.h"
#include "support/random_problem.h"
#include "support/shapes.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

constexpr int quick_problems = 6, all_problems = 60, shapes_per_variant = 6;

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
std::string random_tiling(const Problem &p, Random &random) {
    return is_linear(p) ? "" : random.pick(std::vector<std::string>{"", "frame=thread_rows", "frame=block_tiles"});
}

// Large heads do not fit into the registers of the threads of a row.
bool is_served(Problem p, const std::string &tiling) {
    std::string error = gen::complete(&p);
    return error.empty() && !gen::plan_variants(p, {target()}, tiling, &error).empty();
}

// Returns the number of shapes.
int sweep(const polyhead_kernel &forced, uint64_t seed, double *worst) {
    const Problem &p = forced.problem;
    Random random(seed ^ 0x736861706573u);
    const KernelSubject subject(forced, seed, random.chance(40), TestDevice::get().raw());
    INFO("pack: " << subject.pack_status().message);
    REQUIRE(subject.pack_status().code == POLYHEAD_OK);
    int shapes = 0;
    for (int i = 0; i < shapes_per_variant; i++) {
        Shape shape = random_shape(p, random);
        if (i == 0 && p.seq_len_kv == 0) { // no keys at all: every row is an empty row
            shape = plain_shape(p, 2, is_mha(p) && p.cross == 0 ? 0 : 3, 0, seed);
        }
        if (serves(forced, shape.seq_len_q)) {
            CHECK(check_answer(subject.subject(), fitting(shape, forced), worst, 3e7) == "");
            shapes++;
        }
    }
    Shape shape = same_bits_shape(p, seed);
    if (serves(forced, shape.seq_len_q)) {
        CHECK(check_same_bits(subject.subject(), shape) == "");
        shapes++;
    }
    return shapes;
}

} // namespace

TEST_CASE("gpu sweep: random problems over random shapes") {
    INFO(TestDevice::get().error());
    REQUIRE(TestDevice::get().raw() != nullptr);
    const std::string seed_text = sweep_seed_text();
    const char *only = std::getenv("POLYHEAD_SWEEP_ONLY");
    const int count = test_all() ? all_problems : quick_problems;
    for (int i = 0; i < count; i++) {
        if (only != nullptr && std::to_string(i) != only) {
            continue;
        }
        const uint64_t seed = text_seed(seed_text + "/gpu/" + std::to_string(i));
        Random random(seed);
        const Problem p = random_gpu_problem(random);
        std::string tiling = random_tiling(p, random);
        if (!is_served(p, tiling)) {
            tiling.clear();
        }
        const std::string line = generate_line(p) + " --target " + target() + (tiling.empty() ? "" : " --tiling '" + tiling + "'");
        INFO("repeat: POLYHEAD_SWEEP_SEED=" << seed_text << " POLYHEAD_SWEEP_ONLY=" << i << " POLYHEAD_TEST_ALL=" << test_all());
        INFO(line);
        const InProcessKernel compiled(p, {target(), tiling, "gpu_sweep_" + std::to_string(i)});
        REQUIRE(compiled.error() == "");
        double worst = 0;
        int shapes = 0;
        for (const polyhead_kernel &forced : forced_variants(compiled.kernel(), TestDevice::get().api())) {
            shapes += sweep(forced, seed, &worst);
        }
        CHECK(shapes > 0);
        std::printf("gpu sweep %d: %d shapes, largest error %.2f of the tolerance: %s\n", i, shapes, worst, line.c_str());
        std::fflush(stdout);
    }
}
