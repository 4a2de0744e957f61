// CPU schedule of the linear layer.
#pragma once

#include "../generators/layer.h"
#include "machine.h"
#include "tiling.h"

namespace polyhead::gen {

// The Func that takes the layer's result, and its Vars: column, row, and the batch where there is one.
struct LinearOut {
    Halide::Func func;
    Halide::Var n, m;
    std::vector<Halide::Var> outer; // at most one: the batch
    int columns;
};

// Result as rows of `columns` numbers.
void schedule_linear(LinearStages &stages, const LinearOut &out, const Tiling &tiling, const Machine &machine);
// Result as heads of whole panels.
void schedule_projection(HeadProjection &projection, const Tiling &tiling, const Machine &machine);

} // namespace polyhead::gen
