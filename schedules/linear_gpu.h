// GPU schedule of the linear layer, and of plain copies.
#pragma once

#include "../generators/layer.h"
#include "linear_cpu.h"

namespace polyhead::gen {

// Of stages written in the coordinates of threads.
void schedule_linear_gpu(LinearStages &stages, const LinearOut &out, const Machine &machine);
void schedule_projection_gpu(HeadProjection &projection, const Machine &machine);
// A Func without reductions at root: `inner` along threads, the two or three others along blocks.
void schedule_copy_gpu(Halide::Func func, const Halide::Var &inner, const std::vector<Halide::Var> &outer);

} // namespace polyhead::gen
