// Products that a warp makes together: problems with one and with several features, in f16 and bf16, compiled by the test, over lengths
// around the borders of tiles and chunks, against the reference. Quick tier: a few kernels chosen by POLYHEAD_SWEEP_SEED.
// POLYHEAD_TEST_ALL=1: all. POLYHEAD_SWEEP_ONLY=<number> repeats one.

#include "instruments/calls/compiled_kernel.h"
#include "plan/plan.h"

#include "instruments/calls/problems.h"
#include "instruments/reference/expressions.h"
#include "support/device.h"
#include "support/sweep.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

constexpr int all_kernels = 64, quick_kernels = 2, shapes_per_kernel = 5;
const char *const target = "host-cuda-cuda_capability_80";

void choose_masks(Problem *p, Random &random) {
    p->causal = random.pick(std::vector<int32_t>{POLYHEAD_NOT_CAUSAL, POLYHEAD_BOTTOM_RIGHT, POLYHEAD_TOP_LEFT});
    p->kv_lengths = random.chance(50);
    p->window = random.chance(25);
    p->position_offsets = random.chance(20);
    p->mask = random.chance(30) ? random.pick(std::vector<int32_t>{POLYHEAD_BOOLEAN_MASK, POLYHEAD_ADDITIVE_MASK}) : POLYHEAD_NO_MASK;
    p->mask_broadcast = p->mask != POLYHEAD_NO_MASK ? static_cast<int32_t>(random.below(4)) : 0;
}

void choose_modifiers(Problem *p, Random &random) {
    p->score_bias = random.chance(15);
    p->softcap = random.chance(15);
    p->alibi = random.chance(15);
    p->sinks = random.chance(20);
    p->head_gate = random.chance(15);
    p->gate = random.chance(15) ? POLYHEAD_GATE_OF_HEADS : POLYHEAD_NO_GATE;
    p->expression = random.chance(15) ? random.pick(expression_cases()).text : p->expression;
}

Problem warp_problem(int number, Random &random) {
    const int heads = random.pick(std::vector<int>{1, 2, 4});
    const std::vector<int> dims = {64, 64, 128, 16, 32, 48, 80, 96, 8, 24, 40, 120};
    Problem p = sdpa_problem(heads, random.pick(dims), random.pick(std::vector<int>{heads, 1}));
    p.head_dim_v = random.chance(70) ? p.head_dim : random.pick(dims);
    p.dtype = number % 2 == 0 ? POLYHEAD_F16 : POLYHEAD_BF16;
    p.lse = random.chance(40);
    // A third is plain, a third has masks alone.
    if (number % 3 != 0) {
        choose_masks(&p, random);
    }
    if (number % 3 == 2) {
        choose_modifiers(&p, random);
    }
    return p;
}

std::vector<Shape> shapes_of(const Problem &p, uint64_t seed) {
    Random random(seed);
    const std::vector<int64_t> lengths = {1, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 150};
    std::vector<Shape> shapes;
    for (int i = 0; i < shapes_per_kernel; i++) {
        Shape shape =
            plain_shape(p, 1 + random.below(2), random.pick(lengths), i == 0 ? 1 : random.pick(lengths), seed + static_cast<uint64_t>(i));
        for (int64_t b = 0; p.kv_lengths != 0 && b < shape.batch; b++) {
            shape.lengths.push_back(static_cast<int32_t>(random.between(0, shape.seq_len_kv)));
        }
        shape.key = random.pick(std::vector<Layout>{Layout::bhsd, Layout::bshd});
        shape.value = random.pick(std::vector<Layout>{Layout::bhsd, Layout::bshd});
        shape.out = random.pick(std::vector<Layout>{Layout::bhsd, Layout::bshd});
        shape.poison = random.chance(70);
        shape.poison_key = random.chance(30) ? random.below(shape.seq_len_kv) : -1;
        shape.extras = random_extras(p, shape.seq_len_q, shape.seq_len_kv, random);
        shape.softmax_scale = random.chance(25) ? std::optional<float>(random.pick(std::vector<float>{-0.2f, 0.4f, 0.0f})) : std::nullopt;
        shape.values = random.pick(std::vector<Values>{Values::normal, Values::peaked});
        shapes.push_back(shape);
    }
    return shapes;
}

} // namespace

TEST_CASE("gpu warp tiles: tiles of 64 and of 128 rows give a row the same bits") {
    REQUIRE(TestDevice::get().raw() != nullptr);
    if (TestDevice::get().api() != Api::cuda) {
        SUCCEED("no warp multiplies there");
        return;
    }
    Problem p = sdpa_problem(2, 64);
    p.dtype = POLYHEAD_F16;
    p.causal = POLYHEAD_BOTTOM_RIGHT; // which chunks are whole depends on the tile
    p.kv_lengths = 1;
    Shape shape = plain_shape(p, 1, 150, 200, 7);
    shape.lengths = {133};
    shape.values = Values::peaked;
    std::vector<float> first;
    for (const std::string knob : {"", " thread_rows=1", " row_groups=2"}) {
        const std::string tiling = "frame=warp_tiles" + knob;
        const CompiledKernel compiled(p, {target, tiling, "gpu_warp_rows_" + std::to_string(knob.size())});
        REQUIRE(compiled.error() == "");
        const KernelSubject subject(forced_variants(compiled.kernel(), Api::cuda).at(0), 1, false, TestDevice::get().raw());
        Inputs inputs(p, shape);
        INFO(tiling);
        REQUIRE(subject.subject().run(inputs.args()).code == POLYHEAD_OK);
        const std::vector<float> out = inputs.out();
        first = first.empty() ? out : first;
        CHECK(std::memcmp(out.data(), first.data(), out.size() * sizeof(float)) == 0);
    }
}

// Halide forgets the count of a loop where a stage in it chooses by a value, as softcap does.
TEST_CASE("gpu warp tiles: rows of short batch rows see no whole chunk of a long one, also with softcap") {
    REQUIRE(TestDevice::get().raw() != nullptr);
    if (TestDevice::get().api() != Api::cuda) {
        SUCCEED("no warp multiplies there");
        return;
    }
    Problem p = sdpa_problem(1, 64);
    p.dtype = POLYHEAD_BF16;
    p.softcap = 1;
    p.kv_lengths = 1;
    const CompiledKernel compiled(p, {target, "frame=warp_tiles", "gpu_warp_counts"});
    REQUIRE(compiled.error() == "");
    const KernelSubject subject(forced_variants(compiled.kernel(), Api::cuda).at(0), 1, false, TestDevice::get().raw());
    Shape shape = plain_shape(p, 2, 16, 96, 1);
    shape.lengths = {2, 85};
    double worst = 0;
    CHECK(check_answer(subject.subject(), shape, &worst, 3e7) == "");
}

TEST_CASE("gpu warp tiles: features over lengths around the borders of tiles") {
    INFO(TestDevice::get().error());
    REQUIRE(TestDevice::get().raw() != nullptr);
    if (TestDevice::get().api() != Api::cuda) {
        SUCCEED("no warp multiplies there");
        return;
    }
    for_each_of_sweep("gpu/warp_tiles/", rotating_numbers(0, all_kernels, quick_kernels), [&](int number, uint64_t seed) {
        Random random(seed);
        const Problem p = warp_problem(number, random);
        const std::string tiling =
            std::string("frame=warp_tiles") +
            random.pick(std::vector<const char *>{"", "", "", " kv_tile=16", " kv_tile=32 thread_rows=1", " kv_tile=48 row_groups=2",
                                                  " kv_tile=16 row_groups=1 thread_rows=1"});
        const std::string line = generate_line(p) + " --target " + target + " --tiling '" + tiling + "'";
        INFO(line);
        const CompiledKernel compiled(p, {target, tiling, "gpu_warp_tiles_" + std::to_string(number)});
        REQUIRE(compiled.error() == "");
        const std::vector<polyhead_kernel> forced = forced_variants(compiled.kernel(), Api::cuda);
        REQUIRE(forced.size() == 1);
        const KernelSubject subject(forced[0], seed, false, TestDevice::get().raw());
        double worst = 0;
        const std::vector<Shape> shapes = shapes_of(p, seed);
        for (const Shape &shape : shapes) {
            CHECK(check_answer(subject.subject(), shape, &worst, 3e7) == "");
        }
        CHECK(check_same_bits(subject.subject(), same_bits_shape(p, seed)) == "");
        print_swept("gpu warp tiles", number, static_cast<int>(shapes.size()) + 1, worst, line);
    });
}
