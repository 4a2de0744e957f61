// Scores as an output: how much of them one task computes.
#pragma once

#include "../machines/machine.h"

namespace polyhead::gen {

// Queries of a task, keys whose scores share registers, sums of a row's probs side by side, and blocks of queries in a task.
struct ScoreOutputTile {
    int queries, keys, lanes, query_blocks;
};
ScoreOutputTile score_output_tile(const Machine &machine);

} // namespace polyhead::gen
