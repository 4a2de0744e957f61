// Kernels that a test compiles for itself.
#ifndef POLYHEAD_INSTRUMENTS_COMPILED_KERNEL_H
#define POLYHEAD_INSTRUMENTS_COMPILED_KERNEL_H

#include "../../load/compiled_kernel.h"

namespace polyhead::test {

struct CompiledKernel : load::CompiledKernel {
    explicit CompiledKernel(const Problem &problem, const load::CompiledKernelOptions &options = {})
        : load::CompiledKernel(problem, POLYHEAD_COMPILER_PROGRAM, options) {}
};

} // namespace polyhead::test
#endif
