// Scores as an output: how much of them one task computes.
#pragma once

#include "../machines/machine.h"
#include "tiling.h"

namespace polyhead::gen {

constexpr int gpu_score_threads = 64; // of a block, on a GPU

// Queries of a task, keys whose scores share registers, sums of a row's probs side by side, and blocks of queries in a task.
struct ScoreOutputTile {
    int queries, keys, lanes, query_blocks;
};
ScoreOutputTile score_output_tile(const Machine &machine, const Tiling &tiling);

} // namespace polyhead::gen
