// Facts of the frames of GPUs that follow from the problem alone.
#pragma once

#include "../problem.h"

namespace polyhead::gen {

constexpr int widest_piece = 4; // entries of a row that one load takes

// Neighbouring entries of a row in one thread: the most whose pieces fill rows of both head dims; 0: none do.
int whole_piece(const Problem &problem, int lanes);

// Block tiles: values are in shared memory beside the keys, unless a chunk of keys as they are stored has them.
inline bool stages_values(const Problem &problem) {
    return problem.value_in_key == 0 || problem.rope != POLYHEAD_NO_ROPE;
}

} // namespace polyhead::gen
