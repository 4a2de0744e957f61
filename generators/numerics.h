// Numerics: the few operations whose best form depends on the machine, handed in to the frames.
#pragma once

#include <functional>
#include <vector>

#include <Halide.h>

namespace polyhead::gen {

struct Numerics {
    // 2^x for x <= 0; exactly 0 for the logit of an excluded key, so that it leaves nothing behind.
    std::function<Halide::Expr(Halide::Expr)> exp2;
    // The same plus half a unit in the last place that bf16 keeps of it, so that Words::cut rounds to nearest. On CPUs.
    std::function<Halide::Expr(Halide::Expr)> exp2_to_cut;
    // 2^n for integral n <= 0 held in a float; exactly 0 for n <= -127.
    std::function<Halide::Expr(Halide::Expr)> pow2;
    // The smallest integer that the frame may use as reference exponent of x: at least x, at most x + 2.
    std::function<Halide::Expr(Halide::Expr)> round_up;
    std::function<Halide::Expr(Halide::Expr)> tanh;
    // The sum, or the largest, of an Expr over `lanes` threads of a warp that are `apart` from each other, the same bits in all of them;
    // the Expr itself for 1 lane.
    std::function<Halide::Expr(Halide::Expr, int lanes, int apart)> sum_over_lanes, max_over_lanes;
};

// Polynomials and integer shifts only: every machine with 32-bit integers and floats. No lanes.
Numerics portable_numerics();
// The same where powers are cut to bf16 before they are used: exp2 of degree 3.
Numerics bf16_numerics();
// The exp2 of OpenCL C, at most 3 units in the last place wrong, which devices map to their instruction. No lanes.
Numerics opencl_numerics();
// ex2.approx and shuffles of CUDA.
Numerics cuda_numerics();

// How elements of a storage type lie in memory, and what they mean. 16-bit floats are UInt(16) elements.
struct Storage {
    Halide::Type type;
    std::function<Halide::Expr(Halide::Expr)> load;  // element to float
    std::function<Halide::Expr(Halide::Expr)> store; // float to element, to nearest, ties to even
    int32_t minus_infinity = 0;                      // its bits

    // Of a stored element, by its bits: the float that an instruction loads must not be infinite in Halide's default float mode.
    Halide::Expr is_minus_infinity(const Halide::Expr &element) const;
};

// What a machine multiplies at once. A word holds `pair` neighbouring elements of one operand: one float, or two 16-bit elements whose
// products one instruction adds in f32. Element i of a word lies in its bits 16 i and up.
struct Words {
    int pair;
    Halide::Type type;
    Halide::Expr ones; // the word whose elements are 1
    // The word of stored elements; empty where a word is a float.
    std::function<Halide::Expr(const std::vector<Halide::Expr> &elements)> join;
    // The word of floats, cut after the bits of an element: one instruction. And the word of floats >= 0 or NaN, rounded to nearest.
    std::function<Halide::Expr(const std::vector<Halide::Expr> &values)> cut, round;
    // sum, and what the elements of two words make of it.
    std::function<Halide::Expr(const Halide::Expr &sum, const Halide::Expr &a, const Halide::Expr &b)> add_products;
    // The word with 0 for each element whose condition holds.
    std::function<Halide::Expr(const Halide::Expr &word, const std::vector<Halide::Expr> &dropped)> drop;
};

// Words of one float.
Words float_words();
// Pairs of bf16 for vdpbf16ps: products and sums in f32, rounded to nearest; subnormal elements and results count as 0.
Words bf16_pairs();

// Two neighbouring bf16 elements, loaded as one word, as floats.
std::vector<Halide::Expr> floats_of_bf16_pair(const Halide::Expr &low, const Halide::Expr &high);

// Words of four bytes for vpdpbusd: the word of four elements; one bit pattern in all four; sum, and the products of unsigned bytes of one
// word with signed bytes of another, in 32-bit integers.
struct ByteQuads {
    static Halide::Expr join(const std::vector<Halide::Expr> &elements);
    static Halide::Expr repeated(uint8_t bits);
    static Halide::Expr add_products(const Halide::Expr &sum, const Halide::Expr &unsigned_bytes, const Halide::Expr &signed_bytes);
};

// Without hardware_f16 conversions are shifts and masks only, right for subnormals, infinities and NaN too: Halide 21 prints bf16 as
// half for OpenCL and cannot compile it for CUDA, and few OpenCL devices have 16-bit floats.
Storage storage_of(int dtype, bool hardware_f16);

} // namespace polyhead::gen
