// The schedule of stages that are written in the coordinates of threads.
#pragma once

#include "../generators/thread_stage.h"

namespace polyhead::gen {

// The loops of what threads write, innermost first, and those outside of them.
std::vector<Halide::VarOrRVar> loops_of(const Halide::RDom &written, const std::vector<Halide::Var> &outer);

// Computed where the level stands, all of its loops unrolled.
void place_stage(const ThreadStage &stage, const Halide::LoopLevel &level);

} // namespace polyhead::gen
