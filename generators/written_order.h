// Sums and products of floats that are rounded in the order in which they are written.
#pragma once

#include <Halide.h>

namespace polyhead::gen {

// Halide makes several loops of one formula, for the inside and for the ends of a range, and lets LLVM add up three terms in any order,
// in each loop another: then the padding of keys would decide about the bits of a logit. The sum of a and b here has one order. It costs
// nothing for two terms of which at most one is a product.
Halide::Expr add_in_order(const Halide::Expr &a, const Halide::Expr &b);

// The product on its own, of which no further factor and no sum becomes a part.
Halide::Expr rounded_product(const Halide::Expr &a, const Halide::Expr &b);

// The same Expr with all its sums and products of floats in order, but for `kept` within it, which stays as it is.
Halide::Expr in_written_order(const Halide::Expr &expr, const Halide::Expr &kept);

} // namespace polyhead::gen
