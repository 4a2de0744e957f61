// Runs a kernel: every block after the other, the warps of a block in turns between barriers.
#ifndef POLYHEAD_INSTRUMENTS_CUDA_DRIVER_EXECUTE_H
#define POLYHEAD_INSTRUMENTS_CUDA_DRIVER_EXECUTE_H

#include "warp.h"

namespace polyhead::cuda_driver {

// False with launch.fault set.
bool execute(Launch &launch);

} // namespace polyhead::cuda_driver
#endif
