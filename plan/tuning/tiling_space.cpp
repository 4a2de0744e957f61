// The points that a tuner may try, for each frame.
#include "tiling_space.h"
#include "../../contract/problem.h"

#include "../frames/limits.h"
#include "../knob_rules.h"
#include "../target.h"

namespace polyhead::gen {
namespace {

std::string linear_waste(const Tiling &t, const Machine &machine) {
    const int vectors = POLYHEAD_WEIGHT_PANEL / machine.lanes;
    if (t.linear_panels == 0 || t.linear_rows == 0) { // the schedule chooses what fits
        return t.linear_panels * vectors + 2 <= machine.registers
                   ? ""
                   : "tiling: linear_panels " + std::to_string(t.linear_panels) + " leave no register for sums";
    }
    return needs_registers("sums (linear_rows x linear_panels)", t.linear_rows * t.linear_panels * vectors, t.linear_panels * vectors + 1,
                           machine);
}

} // namespace

std::vector<KnobValues> tiling_space(const Frame &frame, const Problem &p, const Machine &machine) {
    const Tiling defaults = default_tiling(frame, p, machine, {});
    const Product *const tiles = machine.core_product(p.dtype);
    std::vector<KnobValues> space;
    for (const Knob &knob : knobs()) {
        const KnobUse *use = use_of(knob, frame, p, machine);
        // Of a call's tensors every sdpa kernel gets a variant with wide loads and one without.
        const bool by_dispatch =
            knob.value == &Tiling::load_width && !(contract::is_attention_layer(p) && machine.wide() && p.rope == POLYHEAD_NO_ROPE);
        // A frame that multiplies by warps reads heads that projections by warps write.
        const bool by_frame = knob.value == &Tiling::warp_products && frame.multiplies_by_warps();
        // A tuner measures on this machine.
        const bool cannot_run = knob.value == &Tiling::amx && !(tiles && this_cpu_has(tiles->required));
        if (use && !use->values.empty() && !by_dispatch && !by_frame && !cannot_run) {
            const std::vector<int> values = values_of(*use, p, machine, defaults.*knob.value);
            if (values.size() > 1) {
                space.push_back({knob.name, knob.meaning, values});
            }
        }
    }
    return space;
}

std::string candidate_refusal(const Frame &frame, const Problem &p, const Tiling &t, const Machine &machine) {
    std::string refusal = tiling_refusal(frame, p, t, machine);
    if (refusal.empty()) {
        refusal = frame.waste(p, t, machine);
    }
    return refusal.empty() && contract::projects(p) && !machine.gpu() ? linear_waste(t, machine) : refusal;
}

} // namespace polyhead::gen
