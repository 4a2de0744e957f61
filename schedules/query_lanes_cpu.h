// CPU schedule of the frame "query lanes".
#pragma once

#include "../generators/frames/query_lanes.h"
#include "machine.h"

namespace polyhead::gen {

void schedule_query_lanes(QueryLanesStages &stages, const AttentionOut &out, const Machine &machine);

} // namespace polyhead::gen
