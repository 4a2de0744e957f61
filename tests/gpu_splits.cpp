// Decoding on a device with the keys split over blocks of threads: random problems, and those of the matrix of features that are layers or
// return scores or weights, with random tilings, compiled by the test, over lengths around the borders of splits, against the reference,
// and with other neighbours and padding for the same bits. Quick tier: a few kernels chosen by POLYHEAD_SWEEP_SEED. POLYHEAD_TEST_ALL=1:
// many more. POLYHEAD_SWEEP_ONLY=<number> repeats one.

#include "instruments/calls/compiled_kernel.h"
#include "plan/knob_rules.h"
#include "plan/plan.h"
#include "plan/target.h"

#include "instruments/calls/problems.h"
#include "instruments/reference/expressions.h"
#include "random_tiling.h"
#include "support/device.h"
#include "support/feature_matrix.h"
#include "support/sweep.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

constexpr int all_kernels = 24, quick_kernels = 2, all_rows = 80, longest_split = 96, most_sums_of_pocl = 128;

std::string target() {
    return TestDevice::get().api() == Api::cuda ? "host-cuda-cuda_capability_80" : "host-opencl";
}

// What may exclude keys one by one, or begin behind the first: then every chunk of keys is looked at key by key.
void draw_masks(Problem *p, bool window, Random &random) {
    p->window = window && random.chance(40);
    p->mask = random.chance(40) ? random.pick(std::vector<int32_t>{POLYHEAD_BOOLEAN_MASK, POLYHEAD_ADDITIVE_MASK}) : POLYHEAD_NO_MASK;
    p->mask_broadcast = p->mask != POLYHEAD_NO_MASK ? static_cast<int32_t>(random.below(4)) : 0;
    p->score_bias = random.chance(15);
    if (random.chance(15)) {
        p->expression = random.pick(expression_cases()).text;
    }
}

void draw_modifiers(Problem *p, Random &random) {
    p->softcap = random.chance(15);
    p->alibi = random.chance(15);
    p->sinks = random.chance(25);
    p->rope = random.chance(20) ? int32_t(random.between(POLYHEAD_ROPE_INTERLEAVED, POLYHEAD_ROPE_HALF_SPLIT_TRAILING)) : POLYHEAD_NO_ROPE;
    p->head_gate = random.chance(20);
}

// Whatever decodes; heads are small, so that kernels are compiled fast.
Problem random_decoding(bool masks, bool window, Random &random) {
    for (;;) {
        const int heads = random.pick(std::vector<int>{3, 4, 6, 8}), head_dim = random.pick(std::vector<int>{8, 16, 24, 33, 40, 64});
        const int kv_heads = random.pick(std::vector<int>{heads, 1, heads % 2 == 0 ? 2 : 1});
        Problem p = sdpa_problem(heads, head_dim, kv_heads, random.pick(std::vector<int>{head_dim, 8, 24}));
        p.dtype = random.pick(std::vector<int32_t>{POLYHEAD_F32, POLYHEAD_F32, POLYHEAD_F16, POLYHEAD_BF16});
        p.value_in_key = random.chance(15);
        p.int8_cache = random.chance(15);
        p.causal = random.pick(std::vector<int32_t>{POLYHEAD_NOT_CAUSAL, POLYHEAD_BOTTOM_RIGHT, POLYHEAD_TOP_LEFT});
        p.kv_lengths = random.chance(75);
        p.lse = random.chance(60);
        p.position_offsets = random.chance(20);
        if (masks) {
            draw_masks(&p, window, random);
        }
        draw_modifiers(&p, random);
        p.page_size = random.pick(std::vector<int32_t>{0, 0, 0, 1, 16});
        p.seq_len_kv = p.page_size == 0 && random.chance(15) ? 150 : 0;
        if (gen::complete(&p).empty()) {
            return p;
        }
    }
}

// Row `number` of those of the matrix that are layers with a cache or keys of another input, or return scores or weights. Fixed query
// lengths are as short as splits serve.
Problem decoding_of_matrix(int number, bool window) {
    static const std::vector<Problem> problems = [] {
        std::vector<Problem> all;
        for (const FeatureRow &row : feature_rows()) {
            Problem p = feature_problem(row);
            const bool attends_itself = is_mha(p) && p.cross == 0 && p.cache == 0; // as few keys as queries: not split
            if (!attends_itself && (p.scores != POLYHEAD_NO_SCORES || p.weights_mean != 0 || p.cache != 0 || p.cross != 0)) {
                p.seq_len_q = p.seq_len_q != 0 ? 3 : 0;
                all.push_back(p);
            }
        }
        return all;
    }();
    REQUIRE(problems.size() >= size_t(all_rows));
    Problem p = problems[static_cast<size_t>(number)];
    p.window = window ? p.window : 0;
    REQUIRE(gen::complete(&p) == "");
    return p;
}

// A tiling whose splits are so short that the shapes have many.
gen::VariantPlan random_plan(const std::string &frame, const Problem &p, Random &random, std::string *text) {
    const gen::Machine machine = gen::machine_of(gen::parsed_target(target()));
    for (;;) {
        std::string error;
        *text = random_tiling(frame, p, machine, random);
        INFO(generate_line(p));
        REQUIRE(!text->empty());
        const std::vector<gen::VariantPlan> plans = gen::plan_variants(p, {target()}, *text, &error);
        INFO(*text);
        REQUIRE(error == "");
        const gen::Tiling &tiling = plans[0].tiling;
        const int wide = std::max(tiling.load_width, 1); // rows of dense tensors begin at multiples of it
        const bool fits = p.head_dim % wide == 0 && p.head_dim_v % wide == 0;
        // PoCL compiles threads that have much to do for minutes. It makes vectors of blocks with one column of threads, whose last stores
        // are wrong; with POCL_WORK_GROUP_METHOD=loops they are right.
        const bool pocl = TestDevice::get().api() == Api::opencl, column = frame == "split_tiles" && tiling.row_lanes == 1;
        const bool compiled = !pocl || (!column && tiling.thread_rows * p.head_dim <= most_sums_of_pocl * tiling.row_lanes);
        if (tiling.split_len <= longest_split && fits && compiled) {
            return plans[0];
        }
    }
}

// Valid keys of each batch row: of all, or of those that a cache had before.
void set_lengths(const Problem &p, const std::vector<int64_t> &wanted, Shape *shape) {
    const int64_t most = shape->seq_len_kv - (p.cache != 0 ? shape->seq_len_q : 0);
    // EXCLUDED: lengths beyond the keys: 0..T_kv (c_api.h), of a cache 0..capacity - T_q
    for (int64_t b = 0; (p.kv_lengths != 0 || p.cache != 0) && b < shape->batch; b++) {
        shape->lengths.push_back(static_cast<int32_t>(std::clamp<int64_t>(wanted[static_cast<size_t>(b)], 0, most)));
    }
}

// Lengths around the borders of splits of so many keys, and beyond the lanes of the merge.
std::vector<Shape> shapes_of(const Problem &p, int split, uint64_t seed) {
    Random random(seed);
    const std::vector<int64_t> keys = {1, split - 1, split, split + 1, 2 * split, 3 * split + 5, 9 * split + 1, 17 * split};
    const std::vector<int64_t> queries = {1, 1, 2, 3, 5, 16};
    std::vector<Shape> shapes;
    for (size_t i = 0; i < keys.size(); i++) {
        const int64_t batch = p.kv_lengths != 0 || p.cache != 0 ? 4 : 1 + random.below(2);
        Shape shape = plain_shape(p, batch, random.pick(queries), std::max<int64_t>(keys[i], 1), seed + i);
        const std::vector<int64_t> lengths = {shape.seq_len_kv, random.pick(keys), random.pick(std::vector<int64_t>{0, 1, split}),
                                              random.between(0, shape.seq_len_kv)};
        set_lengths(p, lengths, &shape);
        shape.key = random.pick(std::vector<Layout>{Layout::bhsd, Layout::bshd});
        shape.value = random.pick(std::vector<Layout>{Layout::bhsd, Layout::bshd});
        shape.poison = random.chance(70);
        shape.extras = random_extras(p, shape.seq_len_q, shape.seq_len_kv, random);
        shape.values = random.pick(std::vector<Values>{Values::normal, Values::peaked, Values::values_near_one});
        shapes.push_back(shape);
    }
    return shapes;
}

// Batch rows of very different lengths, and room for padding behind the longest.
Shape neighbours(const Problem &p, int split, uint64_t seed) {
    Shape shape = plain_shape(p, 5, 3, 9 * split + 70, seed);
    const std::vector<int64_t> lengths = {split, shape.seq_len_kv - 70, 0, 2 * split + 1, 1};
    set_lengths(p, lengths, &shape);
    Random random(seed);
    shape.poison = true;
    shape.extras = random_extras(p, shape.seq_len_q, shape.seq_len_kv, random);
    return shape;
}

// of_matrix: rows of the matrix of features, otherwise random problems.
void sweep(const std::string &frame, bool of_matrix) {
    INFO(TestDevice::get().error());
    REQUIRE(TestDevice::get().raw() != nullptr);
    if (TestDevice::get().api() == Api::vulkan) {
        SUCCEED("no frame has splits there");
        return;
    }
    // PoCL 3.1 runs barriers under a condition wrongly: docs/guides/gpu.md
    const bool opencl = TestDevice::get().api() == Api::opencl, window = frame != "split_tiles" || !opencl;
    // Kernels have split rows where threads exchange values, and split tiles elsewhere.
    const int quick = opencl == (frame == "split_tiles") ? quick_kernels : 1;
    const std::string name = std::string(of_matrix ? "gpu/splits_of_matrix/" : "gpu/splits/") + frame + "/";
    for_each_of_sweep(name, rotating_numbers(0, of_matrix ? all_rows : all_kernels, quick), [&](int number, uint64_t seed) {
        Random random(seed);
        const Problem p = of_matrix ? decoding_of_matrix(number, window) : random_decoding(number % 2 == 1, window, random);
        std::string tiling;
        const gen::VariantPlan plan = random_plan(frame, p, random, &tiling);
        const std::string line = generate_line(p) + " --target " + target() + " --tiling '" + tiling + "'";
        INFO(line);
        const CompiledKernel compiled(p, {target(), tiling, "gpu_splits_" + std::to_string(number)});
        REQUIRE(compiled.error() == "");
        const std::vector<polyhead_kernel> forced = forced_variants(compiled.kernel(), TestDevice::get());
        REQUIRE(forced.size() == 1);
        const KernelSubject subject(forced[0], seed, false, TestDevice::get().raw());
        double worst = 0;
        const std::vector<Shape> shapes = shapes_of(p, plan.tiling.split_len, seed);
        for (const Shape &shape : shapes) {
            CHECK(check_answer(subject.subject(), shape, &worst, 3e7) == "");
        }
        CHECK(check_same_bits(subject.subject(), neighbours(p, plan.tiling.split_len, seed)) == "");
        print_swept(of_matrix ? "gpu splits of the matrix" : "gpu splits", number, static_cast<int>(shapes.size()) + 1, worst, line);
    });
}

} // namespace

TEST_CASE("gpu splits: split rows") {
    sweep("split_rows", false);
}

TEST_CASE("gpu splits: split tiles") {
    sweep("split_tiles", false);
}

TEST_CASE("gpu splits: layers, scores and weights, split rows") {
    sweep("split_rows", true);
}

TEST_CASE("gpu splits: layers, scores and weights, split tiles") {
    sweep("split_tiles", true);
}
