// CPU schedule of the frame "head lanes".
#pragma once

#include "../generators/frames/head_lanes.h"
#include "machine.h"

namespace polyhead::gen {

void schedule_head_lanes(HeadLanesStages &stages, const AttentionOut &out, const Machine &machine);
// lse, which is made of what was merged.
void schedule_head_lanes_lse(const HeadLanesStages &stages, const AttentionOut &out, Halide::Func lse);

} // namespace polyhead::gen
