// What devices of every API do by Halide's runtime.
#ifndef POLYHEAD_RUNTIME_GPU_HALIDE_DEVICE_H
#define POLYHEAD_RUNTIME_GPU_HALIDE_DEVICE_H

#include "../call/device.h"

namespace polyhead::runtime {

class HalideDevice : public polyhead_device {
public:
    int bring_back(void *user_context, KernelBuffer *buffer) noexcept final;
    void free_copy(void *user_context, KernelBuffer *buffer) noexcept final;
};

} // namespace polyhead::runtime
#endif
