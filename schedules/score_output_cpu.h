// CPU schedule of scores as an output, and the numbers of every machine.
#pragma once

#include "../generators/score_output.h"
#include "machine.h"

namespace polyhead::gen {

// Queries of a task, keys whose scores share registers, and sums of a row's probs side by side.
struct ScoreOutputTile {
    int queries, keys, lanes;
};
ScoreOutputTile score_output_tile(const Machine &machine);

void schedule_score_output(ScoreOutputStages &stages, const Machine &machine);

} // namespace polyhead::gen
