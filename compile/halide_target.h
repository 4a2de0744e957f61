// Targets as Halide has them.
#pragma once

#include <Halide.h>

#include "../plan/target.h"

namespace polyhead::gen {

// A target that was parsed, with the features that every kernel has or not.
inline Halide::Target halide_target(const Target &target) {
    return Halide::Target(target.to_string());
}

inline Machine machine_of(const Halide::Target &target) {
    return machine_of(parsed_target(target.to_string()));
}

} // namespace polyhead::gen
