// The code that was loaded into OpenCL contexts.
#ifndef POLYHEAD_RUNTIME_GPU_OPENCL_PROGRAMS_H
#define POLYHEAD_RUNTIME_GPU_OPENCL_PROGRAMS_H

#include "opencl_driver.h"

namespace polyhead::runtime::opencl {

// A device on this context was opened; closed() for the last of them releases the context's programs. False without memory.
bool opened(Object context) noexcept;
void closed(const Driver &driver, Object context) noexcept;
// A library at these bytes leaves the process: releases the programs of its kernels.
void left(const void *begin, const void *end) noexcept;

} // namespace polyhead::runtime::opencl
#endif
