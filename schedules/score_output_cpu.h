// CPU schedule of scores as an output.
#pragma once

#include "../generators/score_output.h"
#include "machine.h"

namespace polyhead::gen {

// Queries of a task, and keys whose scores share registers.
struct ScoreOutputTile {
    int queries, keys;
};
ScoreOutputTile score_output_tile(const Machine &machine);

void schedule_score_output(ScoreOutputStages &stages, const Machine &machine);

} // namespace polyhead::gen
