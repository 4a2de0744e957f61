// Products that lanes hold, as Exprs (machines/products.h has their rows).
#pragma once

#include <functional>
#include <vector>

#include <Halide.h>

#include "../machines/products.h"

namespace polyhead::gen {

// A word holds the `k` neighbouring elements of one operand that a lane multiplies at once: one float, two 16-bit elements or four bytes.
// Element i of a word lies in its bits 32 / k * i and up.
struct LaneProduct {
    int k;
    Halide::Type type; // of a word
    Halide::Expr ones; // the word whose elements are 1; not of integers
    // The word of a stored element for each part from 0 to k - 1.
    Halide::Expr word(const std::function<Halide::Expr(int part)> &element) const;
    // The word of stored elements; empty where a word is a float.
    std::function<Halide::Expr(const std::vector<Halide::Expr> &elements)> join;
    // The word whose elements have these bits; empty where a word is a float.
    std::function<Halide::Expr(uint32_t bits)> repeated;
    // The word of floats, cut after the bits of an element: one instruction. And the word of floats rounded to nearest, ties away from
    // zero. Not of integers.
    std::function<Halide::Expr(const std::vector<Halide::Expr> &values)> cut, round;
    // sum, and the products of the elements of two words.
    std::function<Halide::Expr(const Halide::Expr &sum, const Halide::Expr &a, const Halide::Expr &b)> add_products;
    // The word with 0 for each element whose condition holds. Not of integers.
    std::function<Halide::Expr(const Halide::Expr &word, const std::vector<Halide::Expr> &dropped)> drop;
    // The elements of a word. Not of integers.
    std::function<std::vector<Halide::Expr>(const Halide::Expr &word)> floats;
};

// A product of floats where there is none of stored elements (null), or one that code asks for by name.
LaneProduct lane_product(const Product *product);

// Two neighbouring bf16 elements, loaded as one word, as floats.
std::vector<Halide::Expr> floats_of_bf16_pair(const Halide::Expr &low, const Halide::Expr &high);

} // namespace polyhead::gen
