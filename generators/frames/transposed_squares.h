// Rows of a matrix transposed in squares as wide as a vector, inside registers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <Halide.h>

namespace polyhead::gen {

// A square seen as one row of side * side elements: the element of row r and column c begins at r * side + c and ends at c * side + r.
// Every perfect shuffle (first half and second half interleaved) moves the highest bit of the index to the lowest place, so log2 side of
// them do it, each an interleaving of vectors.
struct TransposedSquares {
    int side;    // a power of 2
    int columns; // of the matrix, at least side
    Halide::Var f{"f"}, block{"block"};
    Halide::Func rows;                  // (row * side + column, block, outer...): as it lies in memory
    std::vector<Halide::Func> shuffles; // (f, block, outer...); of the last one, f is column * side + row
    std::vector<Halide::RDom> domains;  // of the shuffles: (half, place in a vector, vector)

    int blocks() const { return (columns + side - 1) / side; }
    // The last square ends with the last column, wherever it begins.
    Halide::Expr first_column(const Halide::Expr &block) const;
    const Halide::Func &transposed() const { return shuffles.back(); }
    std::vector<Halide::Func> funcs() const;
};

// source: the element of a column and of a row in the square.
TransposedSquares transpose_squares(const std::string &name, int side, int columns, const std::vector<Halide::Var> &outer,
                                    const std::function<Halide::Expr(Halide::Expr column, Halide::Expr row)> &source);

} // namespace polyhead::gen
