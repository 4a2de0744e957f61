// A stage of code that is written in the coordinates of threads.
#pragma once

#include <utility>
#include <vector>

#include <Halide.h>

namespace polyhead::gen {

// A Func of a thread that is computed once where it stands: dimensions with their extents, and the domains of its update, innermost first.
struct ThreadStage {
    Halide::Func func;
    std::vector<std::pair<Halide::Var, int>> dims;
    std::vector<Halide::RVar> update;
};

} // namespace polyhead::gen
