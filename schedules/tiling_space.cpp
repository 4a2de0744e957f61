// The points that a tuner may try, for each frame.
#include "tiling_space.h"

#include <algorithm>

namespace polyhead::gen {
namespace {

using Knob = int Tiling::*;

struct Space {
    const Tiling defaults;
    std::vector<KnobValues> knobs;

    // The values that are at most `most`, and the default.
    void add(Knob knob, std::vector<int> values, int most = 1 << 20) {
        values.erase(std::remove_if(values.begin(), values.end(), [most](int value) { return value > most; }), values.end());
        values.push_back(defaults.*knob);
        std::sort(values.begin(), values.end());
        values.erase(std::unique(values.begin(), values.end()), values.end());
        if (values.size() == 1) {
            return; // nothing to choose
        }
#define POLYHEAD_NAMED(name, meaning)                                                                                                      \
    if (knob == &Tiling::name) {                                                                                                           \
        knobs.push_back({#name, meaning, values});                                                                                         \
    }
        POLYHEAD_TILING_KNOBS(POLYHEAD_NAMED)
#undef POLYHEAD_NAMED
    }
};

std::vector<int> times(int factor, std::vector<int> values) {
    for (int &value : values) {
        value *= factor;
    }
    return values;
}

std::vector<int> divisors(int number, int least, int most) {
    std::vector<int> found;
    for (int i = least; i <= most; i++) {
        if (number % i == 0) {
            found.push_back(i);
        }
    }
    return found;
}

void add_query_lanes(Space *space, const Problem &p, const Machine &machine) {
    space->add(&Tiling::q_tile, times(machine.lanes, {1, 2, 3, 4}));
    // Multiples of many panels. A chunk longer than all keys is padding.
    const int most_keys = p.seq_len_kv > 0 ? p.seq_len_kv + 31 : 1 << 20;
    space->add(&Tiling::kv_tile, {16, 24, 32, 48, 60, 64, 80, 96, 120, 128, 144, 160, 192, 240, 256, 320, 384, 480, 512}, most_keys);
    space->add(&Tiling::key_panel, {2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24});
    std::vector<int> panels = divisors(p.head_dim_v, 2, 24);
    panels.insert(panels.end(), {4, 5, 6, 7, 8, 10, 12, 14, 16});
    space->add(&Tiling::value_panel, panels, p.head_dim_v);
    space->add(&Tiling::merge_group, {2, 4, 8, 16, 32, 64});
}

void add_thread_rows(Space *space, const Machine &machine, bool staged) {
    space->add(&Tiling::thread_rows, {1, 2, 4, 8});
    space->add(&Tiling::row_groups, {2, 4, 8, 16, 32, 64, 128});
    if (staged) { // the frame's threads along the keys are always 16
        space->add(&Tiling::kv_tile, {2, 4, 8, 16, 32, 64});
        return;
    }
    space->add(&Tiling::row_lanes, {1, 2, 4, 8, 16}, machine.warp());
    space->add(&Tiling::kv_tile, {1, 2, 3, 4, 6, 8, 12, 16});
    space->add(&Tiling::masked_kv_tile, {1, 2, 3, 4, 8});
}

void add_linear(Space *space, const Machine &machine) {
    if (machine.gpu()) {
        space->add(&Tiling::linear_rows, {2, 4, 8});
        space->add(&Tiling::linear_columns, {4, 8});
        space->add(&Tiling::linear_panels, {1, 2, 4, 8});
        space->add(&Tiling::linear_block, {16, 32, 64, 128});
        return;
    }
    space->add(&Tiling::linear_rows, {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14});
    space->add(&Tiling::linear_panels, {0, 1, 2, 3, 4, 5, 6});
    space->add(&Tiling::linear_block, {16, 32, 48, 64, 96, 128, 192, 256, 384, 512});
}

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

std::vector<KnobValues> tiling_space(const std::string &frame, const Problem &problem, const Machine &machine) {
    Space space{default_tiling(frame, problem, machine, {}), {}};
    if (frame == "query_lanes") {
        add_query_lanes(&space, problem, machine);
    } else if (frame == "head_lanes") {
        space.add(&Tiling::split_len, {32, 64, 128, 192, 256, 384, 512, 1024, 2048});
        space.add(&Tiling::row_tile, {1, 2, 3, 4, 5, 6, 8, 12, 16});
        space.add(&Tiling::key_unroll, {1, 2, 4, 8, 16});
    } else if (frame == "thread_rows" || frame == "block_tiles") {
        add_thread_rows(&space, machine, frame == "block_tiles");
        if (problem.op == POLYHEAD_MHA && machine.wide() && problem.rope == POLYHEAD_NO_ROPE && frame == "thread_rows") {
            space.add(&Tiling::load_width, {1, 4}); // sdpa gets a variant of each
        }
    }
    if (problem.op != POLYHEAD_SDPA) {
        add_linear(&space, machine);
    }
    return space.knobs;
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
