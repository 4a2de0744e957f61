// The functions of OpenCL that polyhead calls itself. Declared here, so that a build needs no OpenCL headers.
#ifndef POLYHEAD_RUNTIME_GPU_OPENCL_DRIVER_H
#define POLYHEAD_RUNTIME_GPU_OPENCL_DRIVER_H

#include <cstddef>
#include <cstdint>

#include <polyhead/c_api.h>

namespace polyhead::runtime::opencl {

// cl_platform_id, cl_device_id, cl_context, cl_command_queue, cl_mem: pointers to objects of the driver.
using Object = void *;

enum : int {
    allocation_failure = -4,
    out_of_resources = -5,
    out_of_host_memory = -6,
    invalid_buffer_size = -61,
};

// X(member, name in the library, result, arguments)
#define POLYHEAD_OPENCL_FUNCTIONS(X)                                                                                                       \
    X(platforms, "clGetPlatformIDs", int, (unsigned, Object *, unsigned *))                                                                \
    X(platform_info, "clGetPlatformInfo", int, (Object, unsigned, size_t, void *, size_t *))                                               \
    X(devices, "clGetDeviceIDs", int, (Object, uint64_t, unsigned, Object *, unsigned *))                                                  \
    X(device_info, "clGetDeviceInfo", int, (Object, unsigned, size_t, void *, size_t *))                                                   \
    X(create_context, "clCreateContext", Object, (const intptr_t *, unsigned, const Object *, void *, void *, int *))                      \
    X(release_context, "clReleaseContext", int, (Object))                                                                                  \
    X(context_info, "clGetContextInfo", int, (Object, unsigned, size_t, void *, size_t *))                                                 \
    X(create_queue, "clCreateCommandQueue", Object, (Object, Object, uint64_t, int *))                                                     \
    X(release_queue, "clReleaseCommandQueue", int, (Object))                                                                               \
    X(queue_info, "clGetCommandQueueInfo", int, (Object, unsigned, size_t, void *, size_t *))                                              \
    X(create_buffer, "clCreateBuffer", Object, (Object, uint64_t, size_t, void *, int *))                                                  \
    X(create_sub_buffer, "clCreateSubBuffer", Object, (Object, uint64_t, unsigned, const void *, int *))                                   \
    X(release_memory, "clReleaseMemObject", int, (Object))                                                                                 \
    X(memory_info, "clGetMemObjectInfo", int, (Object, unsigned, size_t, void *, size_t *))                                                \
    X(create_program, "clCreateProgramWithSource", Object, (Object, unsigned, const char *const *, const size_t *, int *))                 \
    X(build_program, "clBuildProgram", int, (Object, unsigned, const Object *, const char *, void *, void *))                              \
    X(build_info, "clGetProgramBuildInfo", int, (Object, Object, unsigned, size_t, void *, size_t *))                                      \
    X(release_program, "clReleaseProgram", int, (Object))                                                                                  \
    X(create_kernel, "clCreateKernel", Object, (Object, const char *, int *))                                                              \
    X(release_kernel, "clReleaseKernel", int, (Object))                                                                                    \
    X(set_argument, "clSetKernelArg", int, (Object, unsigned, size_t, const void *))                                                       \
    X(launch, "clEnqueueNDRangeKernel", int,                                                                                               \
      (Object, Object, unsigned, const size_t *, const size_t *, const size_t *, unsigned, const void *, void *))                          \
    X(read, "clEnqueueReadBuffer", int, (Object, Object, unsigned, size_t, size_t, void *, unsigned, const void *, void *))                \
    X(write, "clEnqueueWriteBuffer", int, (Object, Object, unsigned, size_t, size_t, const void *, unsigned, const void *, void *))        \
    X(copy, "clEnqueueCopyBuffer", int, (Object, Object, Object, size_t, size_t, size_t, unsigned, const void *, void *))                  \
    X(fill, "clEnqueueFillBuffer", int, (Object, Object, const void *, size_t, size_t, size_t, unsigned, const void *, void *))            \
    X(flush, "clFlush", int, (Object))                                                                                                     \
    X(finish, "clFinish", int, (Object))

struct Driver {
#define POLYHEAD_OPENCL_MEMBER(member, name, result, arguments) result(*member) arguments;
    POLYHEAD_OPENCL_FUNCTIONS(POLYHEAD_OPENCL_MEMBER)
#undef POLYHEAD_OPENCL_MEMBER
};

// Loaded by the first call that finds it; null and a status when there is none. status may be null.
const Driver *driver(polyhead_status *status) noexcept;

// "CL_OUT_OF_RESOURCES", or the number as text.
const char *error_name(int error) noexcept;

// A status for an error that is not 0.
polyhead_status failed(const char *device, const char *what, int error) noexcept;

// Every object of a driver begins with the address of that driver's functions. False when the memory cannot be read.
bool first_word(const void *object, uintptr_t *word) noexcept;

} // namespace polyhead::runtime::opencl
#endif
