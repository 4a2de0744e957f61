// What Halide asserts inside a kernel of a device.
#pragma once

#include <Halide.h>

namespace polyhead::gen {

// Removes the assertions from the pipeline's device loops. They check that a bound_extent() covers the required region, which bounds
// inference cannot prove beyond the last row. OpenCL's code drops them with a warning, Metal's cannot be made with them, CUDA's would trap.
void drop_device_asserts(Halide::Pipeline pipeline);

} // namespace polyhead::gen
