// What a schedule needs to know of a machine: lanes and registers, read from a Halide target once.
#pragma once

#include <Halide.h>

namespace polyhead::gen {

struct Machine {
    int lanes;     // f32 lanes of a vector register
    int registers; // vector registers
};

Machine machine_of(const Halide::Target &target);

} // namespace polyhead::gen
