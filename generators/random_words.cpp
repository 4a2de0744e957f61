// Philox4x32 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; 2011).
#include "random_words.h"

#include "bits.h"

namespace polyhead::gen {

using Halide::cast;
using Halide::Expr;

namespace {

constexpr int rounds = 7; // the fewest that pass the tests of the authors

// The upper word of the key of uniform(), so that no seed gives the decisions of a dropout_seed below 2^32: the bytes of "unif".
constexpr uint32_t uniform_key = 0x66696e75;

} // namespace

WideProduct product_of_64_bits(const Expr &x, uint32_t factor) {
    const Expr whole = cast<uint64_t>(x) * cast<uint64_t>(word(factor));
    return {cast<uint32_t>(whole >> 32), cast<uint32_t>(whole)};
}

WideProduct product_of_halves(const Expr &x, uint32_t factor) {
    const Expr low = x & word(0xffff), high = x >> word(16), factor_low = word(factor & 0xffff), factor_high = word(factor >> 16);
    const Expr middle = low * factor_high + ((low * factor_low) >> word(16)); // below 2^32
    const Expr other = high * factor_low + (middle & word(0xffff));
    return {high * factor_high + (middle >> word(16)) + (other >> word(16)), x * word(factor)};
}

std::vector<Expr> philox(const WordMultiply &multiply, std::vector<Expr> c, Expr key_0, Expr key_1) {
    for (int i = 0; i < rounds; i++) {
        const WideProduct first = multiply(c[0], 0xd2511f53), second = multiply(c[2], 0xcd9e8d57);
        c = {second.high ^ c[1] ^ key_0, second.low, first.high ^ c[3] ^ key_1, first.low};
        key_0 = key_0 + word(0x9e3779b9);
        key_1 = key_1 + word(0xbb67ae85);
    }
    return c;
}

Expr uniform(const WordMultiply &multiply, const std::vector<Expr> &seed_and_coordinates) {
    std::vector<Expr> bits;
    for (const Expr &x : seed_and_coordinates) {
        bits.push_back(cast<uint32_t>(x));
    }
    const Expr first = philox(multiply, {bits[4], bits[3], bits[2], bits[1]}, bits[0], word(uniform_key))[0];
    return cast<float>(cast<int32_t>(first >> word(8))) * (1.0f / (1 << 24));
}

} // namespace polyhead::gen
