// What a task of a kernel takes from the allocator, read off the lowered code.
#pragma once

#include <cstdint>

#include <Halide.h>

namespace polyhead::gen {

// The most bytes that one task of a parallel loop holds at once. An undefined statement has none.
int64_t task_scratch(const Halide::Internal::Stmt &lowered);

} // namespace polyhead::gen
