// Calls of instructions of devices that Halide 21 does not write (machines/device_calls.h has them).
#pragma once

#include <string>
#include <vector>

#include <Halide.h>

#include "../machines/products.h"

namespace polyhead::gen {

constexpr int descriptor_bytes = 16; // where a descriptor takes no distance of columns

// Calls happen in the order in which they are written. `after` is what other calls gave that must have happened before: 0.
Halide::Expr device_call(const std::string &name, std::vector<Halide::Expr> arguments, const Halide::Expr &after = 0);

// sums += a * b, or = with from_zero, of matrices that are in registers of the warp: the first of each.
Halide::Expr warp_product(const Product &product, const Halide::Expr &sums, const Halide::Expr &a, const Halide::Expr &b,
                          const Halide::Expr &from_zero, const Halide::Expr &after = 0);

// The same of four warps, over `columns` columns. a: the first register of its words; or, where `a_in_memory`, the low word of the
// descriptor of a matrix in shared memory, as b is. along_columns: rows of b in memory are along its columns, and not along k.
struct GroupOperands {
    Halide::Expr a, b;
    bool a_in_memory, along_columns;
};
Halide::Expr group_product(const Product &product, const Halide::Expr &sums, int columns, const GroupOperands &operands,
                           const Halide::Expr &from_zero, const Halide::Expr &after = 0);
// The low word of the descriptor of a matrix at this address, and what is added to it for so many bytes further. further_columns: bytes
// from 64 columns to the next 64.
Halide::Expr descriptor(const Halide::Expr &address, int further_columns = descriptor_bytes);
Halide::Expr descriptor_step(const Halide::Expr &bytes);

// Whether one of the elements of a copy at an address in shared memory is not finite: they are made 0.
Halide::Expr made_finite(const Product &product, const Halide::Expr &address, const Halide::Expr &whether, const Halide::Expr &after);

// Adds values that are not finite to the sums of the rows that see them ("mend_f16").
Halide::Expr mended(const Product &product, const std::vector<Halide::Expr> &arguments);

// The signs of the elements of a copy at an address in shared memory change.
Halide::Expr negated(const Product &product, const Halide::Expr &address);

// Operands of a product in parts, from a register on, of 2 or 4 registers of floats each, which `loaded` filled.
Halide::Expr split(const Halide::Expr &stored, int words, int operands, const Halide::Expr &to, const Halide::Expr &loaded);

// Two values as one word of elements that the product multiplies, rounded to nearest.
Halide::Expr packed(const Product &product, const Halide::Expr &low, const Halide::Expr &high);

} // namespace polyhead::gen
