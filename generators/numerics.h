// Numerics: the few operations whose best form depends on the machine, handed in to the frames.
#pragma once

#include <functional>
#include <vector>

#include <Halide.h>

#include "random_words.h"

namespace polyhead::gen {

struct Numerics {
    // 2^x for x <= 0; exactly 0 for the logit of an excluded key, so that it leaves nothing behind.
    std::function<Halide::Expr(Halide::Expr)> exp2;
    // exp2 rounded so that truncation to bf16 (LaneProduct::cut) rounds to nearest. On CPUs.
    std::function<Halide::Expr(Halide::Expr)> exp2_to_cut;
    // 2^n for integral n <= 0 held in a float; exactly 0 for n <= -127.
    std::function<Halide::Expr(Halide::Expr)> pow2;
    // The smallest integer that the frame may use as reference exponent of x: at least x, at most x + 2.
    std::function<Halide::Expr(Halide::Expr)> round_up;
    std::function<Halide::Expr(Halide::Expr)> tanh;
    WordMultiply multiply;
    // The sum, or the largest, of an Expr over `lanes` threads of a warp that are `apart` from each other, the same bits in all of them;
    // the Expr itself for 1 lane.
    std::function<Halide::Expr(Halide::Expr, int lanes, int apart)> sum_over_lanes, max_over_lanes;
    // The bits that any of `lanes` threads has; only where warps multiply.
    std::function<Halide::Expr(Halide::Expr, int lanes, int apart)> bits_over_lanes = {};
    // The larger of two numbers; of a number and NaN, either.
    std::function<Halide::Expr(Halide::Expr, Halide::Expr)> larger = [](const Halide::Expr &a, const Halide::Expr &b) {
        return Halide::max(a, b);
    };
};

// Polynomials and integer shifts only: every machine with 32-bit integers and floats. No lanes.
Numerics portable_numerics();
// The same where integers have 64 bits, too.
Numerics cpu_numerics();
// The same where powers are cut to bf16 before they are used: exp2 of degree 3.
Numerics bf16_numerics();
// The exp2 of OpenCL C, at most 3 units in the last place wrong, which devices map to their instruction. No lanes.
Numerics opencl_numerics();
// ex2.approx and shuffles of CUDA.
Numerics cuda_numerics();
// The same with an instruction for the larger of two numbers, and one that rounds up.
Numerics cuda_warp_numerics();

} // namespace polyhead::gen
