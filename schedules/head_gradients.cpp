// Schedules of gradients of heads before their rotation and norm: row by row, in the loop that writes them. Where weight and bias of the
// norm have gradients, rows are kept before the norm:
//
//   the loop of the frame: kept
//   parallel (batch, head): result
//   parallel (batch, head): weight_sums, bias_sums; for tokens, vectors along the row
#include "schedules.h"

#include <algorithm>

#include "../generators/head_gradients.h"

namespace polyhead::gen {

using Halide::RVar;
using Halide::TailStrategy;
using Halide::Var;

namespace {

void schedule_kept(HeadGradient &g, Halide::Func result, const Machine &machine) {
    const Var task("task");
    const int lanes = std::min(machine.lanes, g.head_dim);
    result.bound(g.d, 0, g.head_dim).vectorize(g.d, lanes, TailStrategy::GuardWithIf).fuse(g.h, g.b, task).parallel(task);
    g.kept.compute_root().bound(g.heads.token, 0, g.heads.tokens).bound(g.h, 0, g.heads.heads).bound(g.b, 0, g.heads.batch);
    for (Halide::Func f : {g.weight_sums, g.bias_sums}) {
        if (f.defined()) {
            f.compute_root().bound(g.d, 0, g.head_dim).vectorize(g.d, lanes, TailStrategy::GuardWithIf).fuse(g.h, g.b, task);
            f.parallel(task);
            f.update().reorder(g.d, g.tokens.x, g.h, g.b).vectorize(g.d, lanes, TailStrategy::GuardWithIf).fuse(g.h, g.b, task);
            f.update().parallel(task);
        }
    }
}

} // namespace

void schedule_head_gradient(HeadGradient &g, Halide::Func result, const Var &token, const Machine &machine) {
    const auto vectors = [&](auto stage, const auto &entries, int count) {
        stage.vectorize(entries, std::min(machine.lanes, count), TailStrategy::GuardWithIf);
    };
    for (Halide::Func f : {g.weighted, g.lane_products, g.products, g.lane_sums, g.sums}) {
        if (f.defined()) {
            f.compute_at(result, token);
        }
    }
    if (g.kept.defined()) {
        schedule_kept(g, result, machine);
    }
    if (g.turned.defined()) {
        g.turned.compute_at(g.written(result), token);
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
