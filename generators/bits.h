// Exprs of bits.
#pragma once

#include <cstdint>
#include <vector>

#include <Halide.h>

namespace polyhead::gen {

inline Halide::Expr word(uint32_t value) {
    return Halide::Internal::make_const(Halide::UInt(32), value);
}

// Two 16-bit elements, or four bytes, as one word; the first in the lowest bits. Halide makes one wide load of neighbours that are joined
// like this, and one shuffle of two vectors.
inline Halide::Expr join_bits(const std::vector<Halide::Expr> &elements) {
    return Halide::Internal::Call::make(Halide::UInt(32), Halide::Internal::Call::concat_bits, elements,
                                        Halide::Internal::Call::PureIntrinsic);
}

inline Halide::Expr pure_call(const char *function, const std::vector<Halide::Expr> &args, Halide::Type type = Halide::Float(32)) {
    return Halide::Internal::Call::make(type, function, args, Halide::Internal::Call::PureExtern);
}

} // namespace polyhead::gen
