// Targets as Halide has them.
#pragma once

#include <Halide.h>

#include "../plan/target.h"

namespace polyhead::gen {

// A target that was parsed, with the features that every kernel has or not.
inline Halide::Target halide_target(const Target &target) {
    return Halide::Target(target.for_halide().to_string());
}

} // namespace polyhead::gen
