// Random points of the table of knobs, as words of --tiling, and problems for them: every knob that a frame reads, within its range.
#ifndef POLYHEAD_TESTS_RANDOM_TILING_H
#define POLYHEAD_TESTS_RANDOM_TILING_H

#include <algorithm>
#include <string>

#include "plan/knob_rules.h"

#include "instruments/calls/problems.h"
#include "instruments/calls/random.h"

namespace polyhead::test {

// Small heads, so that kernels are compiled fast, and what changes the loops: masks, groups, lengths, rotation.
inline Problem tiled_problem(const std::string &frame, Random &random) {
    if (frame == "linear") {
        Problem p = linear_problem(static_cast<int>(random.between(1, 200)), static_cast<int>(random.between(1, 200)));
        p.bias = random.chance(50);
        return p;
    }
    const bool layer = frame != "head_lanes" && frame != "key_lanes" && random.chance(30);
    const int head_dim = random.pick(std::vector<int>{8, 16, 24, 40, 64});
    Problem p = layer ? mha_problem(4 * head_dim, 4, 4, head_dim) : sdpa_problem(4, head_dim, random.pick(std::vector<int>{1, 2, 4}));
    p.head_dim_v = layer ? head_dim : random.pick(std::vector<int>{head_dim, 8, 48});
    p.causal = random.pick(std::vector<int32_t>{POLYHEAD_NOT_CAUSAL, POLYHEAD_BOTTOM_RIGHT, POLYHEAD_TOP_LEFT});
    p.kv_lengths = random.chance(50);
    p.lse = random.chance(50);
    p.window = random.chance(30);
    p.mask = random.chance(30) ? POLYHEAD_BOOLEAN_MASK : random.chance(20) ? POLYHEAD_ADDITIVE_MASK : POLYHEAD_NO_MASK;
    p.rope = random.chance(20) ? POLYHEAD_ROPE_HALF_SPLIT : POLYHEAD_NO_ROPE;
    p.scores = random.chance(20) ? POLYHEAD_WEIGHTS : POLYHEAD_NO_SCORES;
    p.seq_len_kv = !layer && random.chance(20) ? 150 : 0;
    if (frame == "key_lanes") {
        p.op = POLYHEAD_SDPA_BACKWARD;
        p.lse = p.rope = p.scores = 0;
        p.softcap = random.chance(30);
        p.dtype = random.pick(std::vector<int32_t>{POLYHEAD_F32, POLYHEAD_F32, POLYHEAD_BF16, POLYHEAD_BF16, POLYHEAD_F16});
    }
    return p;
}

// Half of the values are those that a tuner tries, the others lie anywhere in the range, small ones as often as large ones; beyond four
// times what a tuner tries only compilers are tested.
inline int random_value(const gen::KnobUse &use, const Problem &p, const gen::Machine &machine, Random &random) {
    const std::vector<int> tried = gen::values_of(use, p, machine, 0);
    if (random.chance(50) && !tried.empty()) {
        return random.pick(tried);
    }
    const int largest = tried.empty() ? use.most : *std::max_element(tried.begin(), tried.end());
    int most = use.most < 4 * std::max(1, largest) ? use.most : 4 * std::max(1, largest);
    for (int halvings = static_cast<int>(random.below(8)); halvings > 0 && most / 2 > use.least; halvings--) {
        most /= 2;
    }
    const int value = static_cast<int>(random.between(use.least, most));
    const int unit = use.unit == gen::Quantity::lanes ? machine.lanes : 1;
    return std::max(value / unit, 1) * unit;
}

// "frame=NAME knob=value ..." that the frame can be built with; most of its knobs are set.
inline std::string random_tiling(const std::string &frame, const Problem &p, const gen::Machine &machine, Random &random) {
    const gen::Frame &of = *gen::frame_named(frame);
    // EXCLUDED: tilings that the frame refuses: plan/knob_rules.h, which the generator asks, too
    for (int attempt = 0; attempt < 10000; attempt++) {
        gen::Tiling drawn;
        for (const gen::Knob &knob : gen::knobs()) {
            const gen::KnobUse *use = gen::use_of(knob, of, p, machine);
            // reduction_block changes rounding errors, which the rules of the tests allow for its default.
            const bool fixed = knob.value == &gen::Tiling::unscheduled || knob.value == &gen::Tiling::reduction_block;
            if (use && !fixed && random.chance(70)) {
                drawn.*knob.value = random_value(*use, p, machine, random);
            }
        }
        if (gen::tiling_refusal(of, p, gen::default_tiling(of, p, machine, drawn), machine).empty()) {
            return "frame=" + frame + " " + drawn.to_string();
        }
    }
    return "";
}

} // namespace polyhead::test
#endif
