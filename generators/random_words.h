// Random numbers as pure functions of coordinates: the same for every tiling, thread count and machine.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <Halide.h>

namespace polyhead::gen {

// Of two words, as the machine computes it best.
struct WideProduct {
    Halide::Expr high, low;
};
using WordMultiply = std::function<WideProduct(const Halide::Expr &x, uint32_t factor)>;

WideProduct product_of_64_bits(const Halide::Expr &x, uint32_t factor);
WideProduct product_of_halves(const Halide::Expr &x, uint32_t factor); // where there are no integers of 64 bits

// Philox4x32 with 7 rounds: four words from four.
std::vector<Halide::Expr> philox(const WordMultiply &multiply, std::vector<Halide::Expr> counter, Halide::Expr key_0, Halide::Expr key_1);

// uniform(seed, b, h, q, kv) of expressions: f32 in [0, 1), a multiple of 2^-24 (docs/internals/algorithm.md).
Halide::Expr uniform(const WordMultiply &multiply, const std::vector<Halide::Expr> &seed_and_coordinates);

} // namespace polyhead::gen
