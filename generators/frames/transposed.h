// Matrices transposed by perfect shuffles: tiles of a tensor over pairs, through memory, and rows in squares as wide as a vector, in
// registers.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <Halide.h>

namespace polyhead::gen {

// A tile of a tensor over pairs, read along its keys and stored so that queries lie side by side.
//
// Seen as one row of q_tile * keys elements, a square of bits moves: the element of query q and key k begins at q * keys + k and ends at
// k * q_tile + q. Every perfect shuffle (first half and second half interleaved) moves the highest bit of the index to the lowest place, so
// log2 q_tile of them do it. Each is one interleaving of vectors, where stores of single elements would be one per element.
struct TransposedTile {
    int q_tile; // a power of 2
    int keys;   // of a block
    int blocks; // of a tile
    Halide::Var kk{"kk"}, qi{"qi"}, block{"block"}, f{"f"};
    Halide::Func rows;                  // (kk in block, qi, block, outer...): as it lies in memory
    std::vector<Halide::Func> shuffles; // (f, block, outer...)
    Halide::Func transposed;            // (qi, kk, outer...)
    Halide::RDom loaded, last_loaded;   // of rows: (key in block, block); blocks that end behind the last key are loaded by themselves
    std::vector<Halide::RDom> domains;  // of the shuffles: (half, place in a vector, vector)
    Halide::RDom stored;                // of the tile: (half, place in a vector, key in block, block)

    std::vector<Halide::Func> funcs() const;
};

// source: the element for a key of the chunk and a row of the tile, clamped to the last key or not. inside: no key before this one lies
// behind the last; a block for which that holds is loaded without clamps, because Halide 21 does not always divide a loop by them. where:
// leaves those blocks that are not needed, whose first key is given.
TransposedTile transpose_tile(const std::string &name, int q_tile, int keys, int blocks, const std::vector<Halide::Var> &outer,
                              const std::function<Halide::Expr(Halide::Expr kk, Halide::Expr qi, bool clamped)> &source,
                              const std::function<Halide::Expr(Halide::Expr behind)> &inside,
                              const std::function<void(Halide::RDom *domain, Halide::Expr first_key)> &where);

// Blocks of `side` that cover `count`, and where one begins: the last one ends with the last, so `count` is at least `side`.
constexpr int blocks_of(int count, int side) {
    return (count + side - 1) / side;
}
Halide::Expr first_of(const Halide::Expr &block, int count, int side);

// Rows of a matrix in squares as wide as a vector.
//
// A square seen as one row of side * side elements: the element of row r and column c begins at r * side + c and ends at c * side + r.
// Every perfect shuffle (first half and second half interleaved) moves the highest bit of the index to the lowest place, so log2 side of
// them do it, each an interleaving of vectors.
struct TransposedSquares {
    int side;    // a power of 2; 1: nothing moves
    int columns; // of the matrix, at least side
    Halide::Var f{"f"}, block{"block"};
    Halide::Func rows;                  // (row * side + column, block, outer...): as it lies in memory
    std::vector<Halide::Func> shuffles; // (f, block, outer...); of the last one, f is column * side + row
    std::vector<Halide::RDom> domains;  // of the shuffles: (half, place in a vector, vector)

    int blocks() const { return blocks_of(columns, side); }
    Halide::Expr first_column(const Halide::Expr &block) const { return first_of(block, columns, side); }
    const Halide::Func &transposed() const { return shuffles.empty() ? rows : shuffles.back(); }
    std::vector<Halide::Func> funcs() const;
};

// source: the element of a column and of a row in the square.
TransposedSquares transpose_squares(const std::string &name, int side, int columns, const std::vector<Halide::Var> &outer,
                                    const std::function<Halide::Expr(Halide::Expr column, Halide::Expr row)> &source);

} // namespace polyhead::gen
