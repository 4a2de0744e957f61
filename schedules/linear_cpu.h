// CPU schedule of the linear layer.
#pragma once

#include "../generators/linear.h"
#include "machine.h"
#include "tiling.h"

namespace polyhead::gen {

// The Func that reads the layer's out() or head_out(), its Vars, and the number of panels that `n` spans.
struct LinearOut {
    Halide::Func func;
    Halide::Var n, m;
    std::vector<Halide::Var> outer; // the rest, innermost first
    int columns;
};

void schedule_linear(LinearStages &stages, const LinearOut &out, const Tiling &tiling, const Machine &machine);

} // namespace polyhead::gen
