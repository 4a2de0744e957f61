// What a task of a kernel takes from the allocator, read off the lowered code.
#pragma once

#include <cstdint>

#include <Halide.h>

namespace polyhead::gen {

// Bytes of an allocation, at most. Every Func of a task is bounded in its own tile and computed for one point of each coordinate around it.
// Halide writes the extent of such a coordinate as a difference of bounds, mostly without seeing that it is 1.
int64_t bytes_at_most(const Halide::Internal::Allocate *op);

// The most bytes that one task of a parallel loop holds at once. An undefined statement has none.
int64_t task_scratch(const Halide::Internal::Stmt &lowered);

} // namespace polyhead::gen
