// The shared memory of a kernel on a device.
#pragma once

#include <cstdint>

#include <Halide.h>

namespace polyhead::gen {

// Bytes that a block of the device loops has at once, the most of them all; 0 without such loops, and on a CPU.
int32_t shared_memory(const Halide::Internal::Stmt &lowered);

} // namespace polyhead::gen
