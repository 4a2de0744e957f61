// Problems and shapes for frames whose warps multiply matrices, and the sweep over them: lengths around the borders of tiles and chunks.
#ifndef POLYHEAD_TESTS_GPU_WARP_PROBLEMS_H
#define POLYHEAD_TESTS_GPU_WARP_PROBLEMS_H

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "instruments/calls/compiled_kernel.h"
#include "instruments/calls/problems.h"
#include "instruments/reference/expressions.h"
#include "support/device.h"
#include "support/sweep.h"

namespace polyhead::test {

constexpr int all_warp_kernels = 64, quick_warp_kernels = 2, shapes_per_warp_kernel = 5;

inline void choose_masks(Problem *p, Random &random) {
    p->causal = random.pick(std::vector<int32_t>{POLYHEAD_NOT_CAUSAL, POLYHEAD_BOTTOM_RIGHT, POLYHEAD_TOP_LEFT});
    p->kv_lengths = random.chance(50);
    p->window = random.chance(25);
    p->position_offsets = random.chance(20);
    p->mask = random.chance(30) ? random.pick(std::vector<int32_t>{POLYHEAD_BOOLEAN_MASK, POLYHEAD_ADDITIVE_MASK}) : POLYHEAD_NO_MASK;
    p->mask_broadcast = p->mask != POLYHEAD_NO_MASK ? static_cast<int32_t>(random.below(4)) : 0;
}

inline void choose_modifiers(Problem *p, Random &random) {
    p->score_bias = random.chance(15);
    p->softcap = random.chance(15);
    p->alibi = random.chance(15);
    p->sinks = random.chance(20);
    p->head_gate = random.chance(15);
    p->gate = random.chance(15) ? POLYHEAD_GATE_OF_HEADS : POLYHEAD_NO_GATE;
    p->expression = random.chance(15) ? random.pick(expression_cases()).text : p->expression;
}

inline Problem warp_problem(int number, Random &random) {
    const int heads = random.pick(std::vector<int>{1, 2, 4});
    const std::vector<int> dims = {64, 64, 128, 16, 32, 48, 80, 96, 8, 24, 40, 120};
    Problem p = sdpa_problem(heads, random.pick(dims), random.pick(std::vector<int>{heads, 1}));
    p.head_dim_v = random.chance(70) ? p.head_dim : random.pick(dims);
    p.dtype = number % 2 == 0 ? POLYHEAD_F16 : POLYHEAD_BF16;
    p.lse = random.chance(40);
    p.page_size = random.chance(25) ? random.pick(std::vector<int32_t>{16, 32, 64, 128}) : 0;
    // A third is plain, a third has masks alone.
    if (number % 3 != 0) {
        choose_masks(&p, random);
    }
    if (number % 3 == 2) {
        choose_modifiers(&p, random);
    }
    return p;
}

inline std::vector<Shape> shapes_of(const Problem &p, uint64_t seed) {
    Random random(seed);
    const std::vector<int64_t> lengths = {1, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 150};
    std::vector<Shape> shapes;
    for (int i = 0; i < shapes_per_warp_kernel; i++) {
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
        shape.values = random.pick(std::vector<Values>{Values::normal, Values::peaked, Values::values_near_one});
        shapes.push_back(shape);
    }
    return shapes;
}

inline std::string file_name(std::string words) {
    std::replace(words.begin(), words.end(), ' ', '_');
    return words;
}

// A row has the same bits in a tile of any height.
inline void check_tiles_agree(const char *target, const std::vector<std::string> &tilings, int32_t dtype = POLYHEAD_F16) {
    Problem p = sdpa_problem(2, 64);
    p.dtype = dtype;
    p.precision = POLYHEAD_TF32X3;
    p.causal = POLYHEAD_BOTTOM_RIGHT; // which chunks are whole depends on the tile
    p.kv_lengths = 1;
    Shape shape = plain_shape(p, 1, 150, 200, 7);
    shape.lengths = {133};
    shape.values = Values::peaked;
    std::vector<float> first;
    for (const std::string &tiling : tilings) {
        const CompiledKernel compiled(p, {target, tiling, "gpu_rows"});
        REQUIRE(compiled.error() == "");
        const KernelSubject subject(forced_variants(compiled.kernel(), TestDevice::get()).at(0), 1, false, TestDevice::get().raw());
        Inputs inputs(p, shape);
        INFO(tiling);
        REQUIRE(subject.subject().run(inputs.args()).code == POLYHEAD_OK);
        const std::vector<float> out = inputs.out();
        first = first.empty() ? out : first;
        CHECK(std::memcmp(out.data(), first.data(), out.size() * sizeof(float)) == 0);
    }
}

// A product may cut off what it adds to a sum, and values of one sign have no luck: sums over any number of keys are within the rule, in
// both ways of adding. most: of the tolerance.
inline void check_long_sums(const char *target, const std::string &tiling, int32_t dtype, double most) {
    Problem p = sdpa_problem(1, 16);
    p.dtype = dtype;
    p.precision = dtype == POLYHEAD_F32 ? POLYHEAD_TF32X3 : POLYHEAD_IEEE;
    const CompiledKernel compiled(p, {target, tiling, "gpu_long_sums"});
    REQUIRE(compiled.error() == "");
    const KernelSubject subject(forced_variants(compiled.kernel(), TestDevice::get()).at(0), 5, false, TestDevice::get().raw());
    for (const int64_t keys : {512, 8192, 65536}) {
        Shape shape = plain_shape(p, 1, 16, keys, 7);
        shape.values = Values::values_near_one;
        double worst = 0;
        CHECK(check_answer(subject.subject(), shape, &worst, 3e7) == "");
        CHECK(worst < most);
    }
}

// Kernels of a frame with one of these tilings, compiled for the target, on the device of the test.
inline void sweep_warps(const std::string &name, const char *target, const std::string &frame, const std::vector<const char *> &tilings,
                        Problem (*make)(int, Random &) = warp_problem) {
    for_each_of_sweep(name + "/", rotating_numbers(0, all_warp_kernels, quick_warp_kernels), [&](int number, uint64_t seed) {
        Random random(seed);
        const Problem p = make(number, random);
        const std::string tiling = "frame=" + frame + random.pick(tilings);
        const std::string line = generate_line(p) + " --target " + target + " --tiling '" + tiling + "'";
        INFO(line);
        const CompiledKernel compiled(p, {target, tiling, file_name(name) + "_" + std::to_string(number)});
        REQUIRE(compiled.error() == "");
        const std::vector<polyhead_kernel> forced = forced_variants(compiled.kernel(), TestDevice::get());
        REQUIRE(forced.size() == 1);
        const KernelSubject subject(forced[0], seed, false, TestDevice::get().raw());
        double worst = 0;
        const std::vector<Shape> shapes = shapes_of(p, seed);
        for (const Shape &shape : shapes) {
            CHECK(check_answer(subject.subject(), shape, &worst, 3e7) == "");
        }
        CHECK(check_same_bits(subject.subject(), same_bits_shape(p, seed)) == "");
        print_swept(name, number, static_cast<int>(shapes.size()) + 1, worst, line);
    });
}

} // namespace polyhead::test
#endif
