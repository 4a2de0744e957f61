// The device interfaces of this archive: how many devices each has, and how one is opened.
#ifndef POLYHEAD_RUNTIME_GPU_APIS_H
#define POLYHEAD_RUNTIME_GPU_APIS_H

#include <polyhead/c_api.h>

namespace polyhead::runtime {

int32_t count_cuda_devices() noexcept;
int32_t count_opencl_devices() noexcept;
int32_t count_vulkan_devices() noexcept;

// Null and a status when there is no such device.
polyhead_device *open_cuda(const polyhead_device_options &options, polyhead_status *status) noexcept;
polyhead_device *open_opencl(const polyhead_device_options &options, polyhead_status *status) noexcept;
polyhead_device *open_vulkan(const polyhead_device_options &options, polyhead_status *status) noexcept;

// A library with the bytes from begin to before end leaves the process, and none of its kernels runs: unloads their code from devices.
void unload_device_code(const void *begin, const void *end) noexcept;

} // namespace polyhead::runtime
#endif
