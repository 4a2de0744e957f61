// The Func through which a schedule sees the result of an attention frame.
#pragma once

#include <Halide.h>

namespace polyhead::gen {

struct AttentionOut {
    Halide::Func func;
    Halide::Var d, q, h, b;
    int columns = 0; // head_dim_v, and one more where lse travels with out
};

} // namespace polyhead::gen
