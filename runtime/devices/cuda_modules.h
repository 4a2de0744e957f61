// The code that was loaded into CUDA contexts.
#ifndef POLYHEAD_RUNTIME_GPU_CUDA_MODULES_H
#define POLYHEAD_RUNTIME_GPU_CUDA_MODULES_H

#include "cuda_driver.h"

namespace polyhead::runtime::cuda {

// A device on this context was opened; closed() for the last of them unloads the context's modules, while it is current. False without
// memory.
bool opened(Context context) noexcept;
void closed(const Driver &driver, Context context) noexcept;
// A library at these bytes leaves the process: unloads the modules of its kernels.
void left(const void *begin, const void *end) noexcept;

} // namespace polyhead::runtime::cuda
#endif
