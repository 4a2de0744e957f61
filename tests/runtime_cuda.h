// What tests of CUDA devices on the driver that executes PTX share: that driver as if the program had just begun, devices, contexts.
#ifndef POLYHEAD_TESTS_RUNTIME_CUDA_H
#define POLYHEAD_TESTS_RUNTIME_CUDA_H

#include "cuda_functions.h"
#include "runtime_sum.h"
#include "support/catch.h"

namespace polyhead::test {

inline Device opened(int index = 0, CUcontext context = nullptr, CUstream stream = nullptr) {
    Device device;
    const Status status = Device::open(Api::cuda, index, &device, context, stream);
    INFO(status.message());
    REQUIRE(status.ok());
    return device;
}

inline void run(const SumCall &call) {
    const Status status = sum_kernel().run(call.args);
    INFO(status.message());
    REQUIRE(status.ok());
}

// A context of its own, as a program makes it that uses the driver itself.
inline CUcontext new_context() {
    CUcontext context = nullptr, popped = nullptr;
    REQUIRE(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
    REQUIRE(CU(cuCtxPopCurrent_v2)(&popped) == CUDA_SUCCESS);
    return context;
}

} // namespace polyhead::test
#endif
