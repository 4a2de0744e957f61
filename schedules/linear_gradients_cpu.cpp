// CPU schedule of the gradients of a linear layer.
//
//   panels of weight, input and grad_out                          once, as floats: a task is a block of rows
//   grad_input: the schedule of a linear layer (linear_cpu.cpp)
//   parallel (linear_block outputs, panels_of_task panels of columns)               grad_weight
//     for blocks of row_block rows                                                  panels of grad_out wait in L2
//       for linear_panels panels of input                                           row_block rows of them wait in L2
//         for linear_rows outputs                                 block_sum: linear_rows x linear_panels panels in registers
//           for rows                                              one broadcast per output, one vector of input per lane group
//             block_sum += grad_out(row) * input(row)
//           weight_sum += block_sum
//   parallel (bias_panels panels of outputs)                      grad_bias
//
// grad_weight reads its rows from top to bottom, so both tensors are copied: as they lie there is a row between two broadcasts of an
// output, and rows of 4 KB meet in one set of the cache.
#include "schedules.h"

#include <algorithm>

#include "../generators/linear_gradients.h"
#include "../plan/tiling.h"
#include "register_tile.h"

namespace polyhead::gen {

using Halide::Func;
using Halide::RVar;
using Halide::TailStrategy;
using Halide::Var;

namespace {

// Of a copy: rows of a task, and those that are read side by side, each from its beginning to its end.
constexpr int rows_of_copy = 64, rows_together = 8;
constexpr int panels_of_task = 12; // of input
constexpr int bias_panels = 4;     // sums that do not wait for each other

void schedule_row_panels(RowPanels &p, const Machine &machine) {
    const int lanes = std::min(machine.lanes, POLYHEAD_WEIGHT_PANEL);
    Var block("block"), some("some"), row("row");
    p.floats.compute_root().bound(p.column, 0, POLYHEAD_WEIGHT_PANEL).bound(p.panel, 0, p.panels).bound(p.row, 0, p.rows);
    p.floats.split(p.row, block, p.row, rows_of_copy, TailStrategy::GuardWithIf)
        .split(p.row, some, row, rows_together, TailStrategy::GuardWithIf)
        .reorder(p.column, row, p.panel, some, block)
        .vectorize(p.column, lanes)
        .unroll(p.column)
        .parallel(block);
}

void schedule_grad_weight(LinearGradientsStages &s, const Tiling &t, const Machine &machine) {
    const int lanes = std::min(machine.lanes, POLYHEAD_WEIGHT_PANEL);
    const RegisterTile tile = register_tile(s.input.panels, false, t, machine);
    const int outputs = in_equal_blocks(s.out_features, t.linear_block, tile.rows),
              panels = in_equal_blocks(s.input.panels, panels_of_task, tile.panels);
    Var po("po"), pi("pi"), no("no"), ni("ni"), nm("nm"), pm("pm"), column("column"), panel("panel"), task("task");
    Func out = s.grad_weight;
    out.bound(s.k, 0, s.embed_dim).bound(s.n, 0, s.out_features);
    out.split(s.k, panel, column, POLYHEAD_WEIGHT_PANEL, TailStrategy::GuardWithIf)
        .split(panel, po, pi, panels, TailStrategy::GuardWithIf)
        .split(s.n, no, ni, outputs, TailStrategy::GuardWithIf)
        .reorder(column, pi, ni, po, no)
        .fuse(po, no, task)
        .parallel(task)
        .vectorize(column, lanes)
        .unroll(column);
    const auto in_registers = [&](auto f) { f.vectorize(s.column, lanes).unroll(s.column); };
    s.weight_sum.compute_at(out, task)
        .bound_extent(s.column, POLYHEAD_WEIGHT_PANEL)
        .bound_extent(s.panel, panels)
        .bound_extent(s.n, outputs);
    in_registers(s.weight_sum);
    in_registers(s.weight_sum.update()
                     .split(s.n, nm, ni, tile.rows)
                     .split(s.panel, pm, pi, tile.panels)
                     .reorder(s.column, pi, ni, nm, pm, s.blocks)
                     .unroll(pi)
                     .unroll(ni));
    s.block_sum.compute_at(s.weight_sum, nm)
        .bound_extent(s.column, POLYHEAD_WEIGHT_PANEL)
        .bound_extent(s.panel, tile.panels)
        .bound_extent(s.n, tile.rows);
    in_registers(s.block_sum.unroll(s.panel).unroll(s.n));
    in_registers(s.block_sum.update().reorder(s.column, s.panel, s.n, s.rows).unroll(s.panel).unroll(s.n));
}

void schedule_grad_bias(LinearGradientsStages &s, const Machine &machine) {
    const int lanes = std::min(machine.lanes, POLYHEAD_WEIGHT_PANEL);
    Var panel("panel"), column("column"), task("task"), pi("pi");
    s.grad_bias.bound(s.n, 0, s.out_features)
        .split(s.n, panel, column, POLYHEAD_WEIGHT_PANEL, TailStrategy::GuardWithIf)
        .split(panel, task, pi, bias_panels, TailStrategy::GuardWithIf)
        .vectorize(column, lanes)
        .parallel(task);
    s.bias_sum.compute_at(s.grad_bias, task);
    s.bias_block_sum.compute_at(s.bias_sum, s.bias_blocks);
    for (Func f : {s.bias_sum, s.bias_block_sum}) {
        f.bound_extent(s.column, POLYHEAD_WEIGHT_PANEL).bound_extent(s.panel, bias_panels);
        f.vectorize(s.column, lanes).unroll(s.column).unroll(s.panel);
    }
    s.bias_sum.update().reorder(s.column, s.panel, s.bias_blocks).vectorize(s.column, lanes).unroll(s.column).unroll(s.panel);
    s.bias_block_sum.update().reorder(s.column, s.panel, s.bias_rows).vectorize(s.column, lanes).unroll(s.column).unroll(s.panel);
}

} // namespace

void schedule_row_marks(RowMarks &m, const Machine &machine) {
    Var some("some"), row("row");
    Func marks = m.marks.in(); // a parallel loop of the maxima themselves would be an atomic one
    marks.compute_root().bound(m.row, 0, m.rows).split(m.row, some, row, rows_of_copy, TailStrategy::GuardWithIf).parallel(some);
    m.marks.compute_at(marks, row);
    m.marks.update().atomic().vectorize(RVar(m.columns.x), machine.lanes);
}

void schedule_linear_gradients(LinearGradientsStages &s, const Tiling &tiling, const Machine &machine) {
    for (RowPanels *panels : {&s.grad_out, &s.weight}) {
        schedule_row_panels(*panels, machine);
    }
    if (s.owns_input) {
        schedule_row_panels(s.input, machine);
    }
    if (s.read_on) {
        s.grad_input_out.func.compute_root().bound(s.m, 0, s.input.rows);
    }
    schedule_linear(s.grad_input, s.grad_input_out, tiling, machine);
    schedule_grad_weight(s, tiling, machine);
    if (s.bias) {
        schedule_grad_bias(s, machine);
    }
}

} // namespace polyhead::gen
