// Numbers of the frame "head lanes" that follow from problem and machine alone.
#pragma once

#include "../../machines/machine.h"
#include "../problem.h"

namespace polyhead::gen {

// Entries of head_dim side by side: as many as fit into both head dims. If they do not divide them, the last vector repeats entries; fewer
// lanes that divide them take longer: 4,096 keys of 40 entries 0.51 of the time, of 72 entries 0.60 (32 and 8 heads, Zen 5).
int head_lanes_of(const Problem &problem, const Machine &machine);

} // namespace polyhead::gen
