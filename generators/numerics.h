// Numerics: the few operations whose best form depends on the machine, handed in to the frames.
#pragma once

#include <functional>

#include <Halide.h>

namespace polyhead::gen {

struct Numerics {
    // 2^x for x <= 0; exactly 0 for x <= -127, so that an excluded logit leaves nothing behind.
    std::function<Halide::Expr(Halide::Expr)> exp2;
    // 2^n for integral n <= 0 held in a float; exactly 0 for n <= -127.
    std::function<Halide::Expr(Halide::Expr)> pow2;
    // The smallest integer that the frame may use as reference exponent of x: at least x, at most x + 2.
    std::function<Halide::Expr(Halide::Expr)> round_up;
};

// Polynomials and integer shifts only: every machine with 32-bit integers and floats.
Numerics portable_numerics();

} // namespace polyhead::gen
