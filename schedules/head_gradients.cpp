// Schedules of gradients of heads before their rotation and norm: row by row, in the loop that writes them.
#include "schedules.h"

#include <algorithm>

#include "../generators/head_gradients.h"

namespace polyhead::gen {

using Halide::RVar;
using Halide::TailStrategy;
using Halide::Var;

void schedule_head_gradient(HeadGradient &g, Halide::Func written, const Var &token, const Machine &machine) {
    const auto vectors = [&](auto stage, const auto &entries, int count) {
        stage.vectorize(entries, std::min(machine.lanes, count), TailStrategy::GuardWithIf);
    };
    for (Halide::Func f : g.funcs()) {
        f.compute_at(written, token);
    }
    if (g.turned.defined()) {
        int update = 0;
        if (g.plain.defined()) {
            vectors(g.turned.update(update++).allow_race_conditions(), RVar(g.plain.x), g.head_dim - g.rotary_dim);
        }
        vectors(g.turned.update(update).allow_race_conditions().unroll(g.rotated.x), RVar(g.rotated.y), g.rotary_dim / 2);
    }
    if (g.weighted.defined()) {
        vectors(g.weighted, g.d, g.head_dim);
    }
    for (Halide::Func f : {g.lane_products, g.lane_sums}) {
        if (f.defined()) {
            f.bound_extent(g.lane, g.lanes).vectorize(g.lane, g.lanes).update().reorder(g.lane, g.words.x).vectorize(g.lane, g.lanes);
        }
    }
    for (Halide::Func f : {g.products, g.sums}) {
        if (f.defined()) {
            f.update().atomic().vectorize(RVar(g.all_lanes.x), g.lanes);
        }
    }
}

} // namespace polyhead::gen
