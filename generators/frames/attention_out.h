// The Func that takes the result of an attention frame, as frame and schedule see it.
#pragma once

#include <Halide.h>

namespace polyhead::gen {

struct AttentionOut {
    Halide::Func func;
    Halide::Var d, q, h, b;
    int columns = 0; // head_dim_v, and one more where lse travels with out
};

} // namespace polyhead::gen
