// The Func that takes the result of an attention frame, as frame and schedule see it.
#pragma once

#include <vector>

#include <Halide.h>

namespace polyhead::gen {

// What a row leaves beside its result.
enum class Statistic { lse, weight_reference };

// Two outputs of different shape cannot share a loop nest: where a frame keeps its tile inside a task, statistics travel with the result
// as further columns.
struct AttentionOut {
    Halide::Func func;
    Halide::Var d, q, h, b;
    int columns = 0; // head_dim_v, and one for each statistic that travels with out
    std::vector<Statistic> statistics;
};

} // namespace polyhead::gen
