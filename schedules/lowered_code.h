// What Halide writes into a kernel and what is changed in it.
#pragma once

#include <Halide.h>

namespace polyhead::gen {

// Changes the pipeline's code:
// - no assertion that the extents of a tensor have a product below 2^31. They are those of a mask as it is spread over all heads and
// queries,
//   by strides of 0; the runtime has checked how far its elements reach.
// In device loops:
// - no assertions. They check that a bound_extent() covers the required region, which bounds inference cannot prove beyond the last row.
//   OpenCL's code drops them with a warning, Metal's cannot be made with them, CUDA's would trap.
// - every barrier is one for shared memory, too. Halide 21 names no memory for the barrier at the end of a loop's body, so a compiler of
//   OpenCL C may move a read of shared memory behind it, where the next step of the loop already writes.
void adapt_lowered_code(Halide::Pipeline pipeline);

} // namespace polyhead::gen
