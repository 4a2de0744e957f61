// Copies of host tensors on a device are made, brought back and freed by Halide's runtime.
#include "halide_device.h"

#include "halide_devices.h"

namespace polyhead::runtime {

int HalideDevice::bring_back(void *user_context, KernelBuffer *buffer) noexcept {
    return halide_copy_to_host(user_context, for_halide(buffer));
}

void HalideDevice::free_copy(void *user_context, KernelBuffer *buffer) noexcept {
    halide_device_free(user_context, for_halide(buffer));
}

} // namespace polyhead::runtime
