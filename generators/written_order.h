// Sums and products of floats that are rounded in the order in which they are written.
#pragma once

#include <Halide.h>

namespace polyhead::gen {

// a + b. Halide makes several loops of one formula, for the inside and for the ends of a range. LLVM may add up three terms in a different
// order in each loop, and T_kv decides which loop computes a logit. This sum has the same order, and the same bits, in all of them. Two
// terms of which at most one is a product are an ordinary sum.
Halide::Expr add_in_order(const Halide::Expr &a, const Halide::Expr &b);

// The sum on its own, whose terms are not added up in another order.
Halide::Expr rounded_sum(const Halide::Expr &a, const Halide::Expr &b);

// The product on its own, of which no further factor and no sum becomes a part.
Halide::Expr rounded_product(const Halide::Expr &a, const Halide::Expr &b);

// The same Expr with all its sums and products of floats in order, but for `kept` within it, which stays as it is.
Halide::Expr in_written_order(const Halide::Expr &expr, const Halide::Expr &kept);

} // namespace polyhead::gen
