// Storage: how elements of a type lie in memory, and what they mean.
#pragma once

#include <functional>

#include <Halide.h>

namespace polyhead::gen {

// How elements of a storage type lie in memory, and what they mean. 16-bit floats are UInt(16) elements.
struct Storage {
    Halide::Type type;
    std::function<Halide::Expr(Halide::Expr)> load;  // element to float
    std::function<Halide::Expr(Halide::Expr)> store; // float to element, to nearest, ties to even
    int32_t minus_infinity = 0;                      // its bits

    // Of a stored element, by its bits: the float that an instruction loads must not be infinite in Halide's default float mode.
    Halide::Expr is_minus_infinity(const Halide::Expr &element) const;
};

// Without hardware_f16 conversions are shifts and masks only, right for subnormals, infinities and NaN too: Halide 21 prints bf16 as
// half for OpenCL and cannot compile it for CUDA, and few OpenCL devices have 16-bit floats.
Storage storage_of(int dtype, bool hardware_f16);

} // namespace polyhead::gen
