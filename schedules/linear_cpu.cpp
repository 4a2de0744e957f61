// CPU schedule of the linear layer.
//
//   parallel (batch, block of linear_block rows, [head,] linear_panels panels of columns)
//     for linear_rows rows                                        block_sum: linear_rows x linear_panels panels in registers
//       for blocks of k
//         for k                                                   one broadcast per row, one vector of weight per lane group
//           block_sum += rows(k) * weight(k)
//         acc += block_sum                                        acc waits in L1: 1 addition per up to 192 multiply-adds
//
// Registers on AVX-512: 8 rows x 3 panels = 24 accumulators + 3 vectors of weight + 1 broadcast = 28 of 32. On AVX2 a panel is
// two vectors: 6 rows x 1 panel = 12 + 2 + 1 of 16. The block of rows keeps the weight panels (768 x 48 floats = 147 KB) in L2
// while the rows pass by.
#include "schedules.h"

#include <algorithm>

#include "../generators/layer.h"
#include "../plan/tiling.h"
#include "register_tile.h"

namespace polyhead::gen {

using Halide::TailStrategy;
using Halide::Var;

namespace {

// Without a knob: panels are tried in this order, as many as the machine's registers are worth; then rows, as many as fit beside them.
constexpr int panels_tried[] = {3, 2, 4, 5}, panels_if_none_divides = 3;
constexpr int least_rows = 5;      // that panels leave registers for: with 32 registers 5 vectors of weights, with 16 2
constexpr int panels_of_tiles = 4; // 64 columns: with 128 rows 32 KB of sums
constexpr int most_rows_of_one_vector = 12, most_rows = 8;

// Rows whose sums fit beside so many vectors of weights and a broadcast.
int rows_beside(int weights, int vectors, const Machine &machine) {
    return (machine.registers - weights - 1) / vectors;
}

int most_vectors(const Machine &machine) {
    int vectors = 1;
    while (rows_beside(vectors + 1, vectors + 1, machine) >= least_rows) {
        vectors++;
    }
    return vectors;
}

} // namespace

RegisterTile register_tile(int panels, bool widens_pairs, const Tiling &tiling, const Machine &machine) {
    const int vectors_per_panel = POLYHEAD_WEIGHT_PANEL / machine.lanes;
    RegisterTile tile{tiling.linear_panels, tiling.linear_rows};
    if (tile.panels == 0) {
        const int most = std::max(1, most_vectors(machine) / vectors_per_panel);
        tile.panels = 1;
        for (const int p : panels_tried) {
            if (p <= most && panels % p == 0) {
                tile.panels = p;
                break;
            }
        }
        if (tile.panels == 1 && panels > most) {
            tile.panels = std::min(panels_if_none_divides, most); // nothing divides: the last tile is partly dropped
        }
    }
    if (tile.rows == 0) {
        const int vectors = tile.panels * vectors_per_panel;
        const int most = vectors == 1 ? most_rows_of_one_vector : most_rows;
        tile.rows = std::clamp(rows_beside(widens_pairs ? 2 * vectors : vectors, vectors, machine), 1, most);
    }
    return tile;
}

namespace {

// Tasks are blocks of panels and of rows, in every batch row; the loops `inside` of a task are given innermost first.
void fuse_tasks(Halide::Func out, std::vector<Halide::VarOrRVar> inside, const Var &po, const Var &mo, const std::vector<Var> &outer,
                const Var &task) {
    inside.insert(inside.end(), {po, mo});
    inside.insert(inside.end(), outer.begin(), outer.end());
    out.reorder(inside).fuse(po, mo, task);
    for (const Var &v : outer) {
        out.fuse(task, v, task);
    }
}

// With tiles a task is a block of rows and some panels, whose sums wait in L1 and L2 for bias and store.
void schedule_tiles(LinearStages &s, Halide::Func out, Var column, Var panel, Var m, const std::vector<Var> &outer, const Tiling &t,
                    const Machine &machine) {
    const int panels = std::min(s.panels, t.linear_panels > 0 ? t.linear_panels : panels_of_tiles);
    const int lanes = std::min(machine.lanes, POLYHEAD_WEIGHT_PANEL);
    Var po("po"), pi("pi"), mo("mo"), mi("mi"), task("task");
    out.split(panel, po, pi, panels, TailStrategy::GuardWithIf).split(m, mo, mi, t.linear_block, TailStrategy::GuardWithIf);
    fuse_tasks(out, {column, pi, mi}, po, mo, outer, task);
    out.parallel(task).vectorize(column, lanes).unroll(column);
    s.products.compute_at(out, task)
        .bound_extent(s.column, POLYHEAD_WEIGHT_PANEL)
        .bound_extent(s.panel, panels)
        .bound_extent(s.m, t.linear_block);
}

// The loop nest above, over a Func whose dimensions were brought to (column in panel, panel, m[, batch]).
void schedule_panels(LinearStages &s, Halide::Func out, Var column, Var panel, Var m, const std::vector<Var> &outer, const Tiling &t,
                     const Machine &machine) {
    if (s.products.defined()) {
        return schedule_tiles(s, out, column, panel, m, outer, t, machine);
    }
    const int lanes = std::min(machine.lanes, POLYHEAD_WEIGHT_PANEL);
    const RegisterTile tile = register_tile(s.panels, s.widens_pairs, t, machine);
    const Halide::Expr block = in_equal_blocks(s.num_rows, t.linear_block, tile.rows);
    Var po("po"), pi("pi"), mo("mo"), mm("mm"), mi("mi"), task("task");
    out.split(panel, po, pi, tile.panels, TailStrategy::GuardWithIf)
        .split(m, mo, mm, block, TailStrategy::GuardWithIf)
        .split(mm, mm, mi, tile.rows, TailStrategy::GuardWithIf);
    fuse_tasks(out, {column, pi, mi, mm}, po, mo, outer, task);
    out.parallel(task).unroll(mi).unroll(pi).vectorize(column, lanes).unroll(column);
    auto unrolled = [&](auto f) { f.vectorize(s.column, lanes).unroll(s.column).unroll(s.panel).unroll(s.m); };
    for (Halide::Func f : {s.acc.compute_at(out, mm), s.block_sum.compute_at(s.acc, s.blocks)}) {
        f.bound_extent(s.column, POLYHEAD_WEIGHT_PANEL).bound_extent(s.panel, tile.panels).bound_extent(s.m, tile.rows);
        unrolled(f);
    }
    unrolled(s.acc.update().reorder(s.column, s.panel, s.m, s.blocks));
    unrolled(s.block_sum.update().reorder(s.column, s.panel, s.m, s.k));
}

} // namespace

void schedule_linear(LinearStages &s, const LinearOut &o, const Tiling &t, const Machine &machine) {
    Var column("column"), panel("panel");
    Halide::Func out = o.func;
    out.bound(o.n, 0, o.columns).split(o.n, panel, column, POLYHEAD_WEIGHT_PANEL, TailStrategy::GuardWithIf);
    schedule_panels(s, out, column, panel, o.m, o.outer, t, machine);
}

void schedule_projection(HeadProjection &p, const Tiling &t, const Machine &machine) {
    p.heads.compute_root().bound(p.column, 0, POLYHEAD_WEIGHT_PANEL).bound(p.panel, 0, p.linear.panels);
    if (!p.joined.joined()) {
        return schedule_panels(p.linear, p.heads, p.column, p.panel, p.t, {p.b}, t, machine);
    }
    // Halide 21 does not see these bounds through products of lengths, and would allocate more.
    p.heads.bound(p.t, 0, p.linear.num_rows).bound(p.b, 0, 1);
    schedule_panels(p.linear, p.heads, p.column, p.panel, p.t, {}, t, machine);
}

} // namespace polyhead::gen
