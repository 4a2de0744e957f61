// The points that a tuner may try, for each frame.
#include "tiling_space.h"

#include <algorithm>

namespace polyhead::gen {
namespace {

std::string needs_registers(const char *what, int accumulators, int others, const Machine &machine) {
    return accumulators + others <= machine.registers
               ? ""
               : "tiling: " + std::string(what) + " take " + std::to_string(accumulators) + " + " + std::to_string(others) + " of " +
                     std::to_string(machine.registers) + " registers";
}

// Accumulators, one vector of the other operand per row of them, and a broadcast.
std::string query_lanes_waste(const Problem &p, const Tiling &t, const Machine &machine) {
    const int vectors = t.q_tile / machine.lanes;
    std::string refusal = needs_registers("scores (q_tile x key_panel)", vectors * t.key_panel, vectors + 1, machine);
    if (refusal.empty()) {
        refusal = needs_registers("sums (q_tile x value_panel)", vectors * t.value_panel, vectors + 1, machine);
    }
    const int chunks = (p.seq_len_kv + t.kv_tile - 1) / t.kv_tile;
    if (refusal.empty() && p.seq_len_kv > 0 && t.merge_group >= 2 * chunks && t.merge_group > 2) {
        return "tiling: merge_group " + std::to_string(t.merge_group) + " is more than twice the " + std::to_string(chunks) +
               " chunks of " + std::to_string(p.seq_len_kv) + " keys";
    }
    return refusal;
}

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

std::vector<KnobValues> tiling_space(const std::string &frame, const Problem &p, const Machine &machine) {
    const Tiling defaults = default_tiling(frame, p, machine, {});
    std::vector<KnobValues> space;
    for (const Knob &knob : knobs()) {
        const KnobUse *use = use_of(knob, frame, p, machine);
        // Of a call's tensors every sdpa kernel gets a variant with wide loads and one without.
        const bool chosen = knob.value != &Tiling::load_width || (p.op == POLYHEAD_MHA && machine.wide() && p.rope == POLYHEAD_NO_ROPE);
        if (use && !use->values.empty() && chosen) {
            const std::vector<int> values = values_of(*use, p, machine, defaults.*knob.value);
            if (values.size() > 1) {
                space.push_back({knob.name, knob.meaning, values});
            }
        }
    }
    return space;
}

std::string candidate_refusal(const std::string &frame, const Problem &p, const Tiling &t, const Machine &machine) {
    std::string refusal = tiling_refusal(frame, p, t, machine);
    if (refusal.empty() && frame == "query_lanes") {
        refusal = query_lanes_waste(p, t, machine);
    } else if (refusal.empty() && frame == "head_lanes") {
        refusal = needs_registers("dot products (row_tile x key_unroll)", t.row_tile * t.key_unroll, t.key_unroll + 1, machine);
    }
    return refusal.empty() && p.op != POLYHEAD_SDPA && !machine.gpu() ? linear_waste(t, machine) : refusal;
}

} // namespace polyhead::gen
