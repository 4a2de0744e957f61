// The schedule of stages that are written in the coordinates of threads.
#pragma once

#include "../generators/thread_stage.h"

namespace polyhead::gen {

// Computed where the level stands, all of its loops unrolled.
void place_stage(const ThreadStage &stage, const Halide::LoopLevel &level);

} // namespace polyhead::gen
