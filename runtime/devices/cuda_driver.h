// The functions of NVIDIA's driver that polyhead calls itself. Declared here, so that a build needs no CUDA headers.
#ifndef POLYHEAD_RUNTIME_GPU_CUDA_DRIVER_H
#define POLYHEAD_RUNTIME_GPU_CUDA_DRIVER_H

#include <cstddef>
#include <cstdint>

#include <polyhead/c_api.h>

namespace polyhead::runtime::cuda {

using Context = void *;
using Stream = void *;
using Module = void *;
using Function = void *;
using Pointer = unsigned long long; // CUdeviceptr

// The driver passes addresses, and options as well, as integers of this size.
inline void *as_pointer(unsigned long long value) noexcept {
    return reinterpret_cast<void *>(value); // NOLINT(performance-no-int-to-ptr)
}

constexpr int out_of_memory = 2, no_device = 100, not_supported = 801; // CUresult

// X(member, name in the library, arguments)
#define POLYHEAD_CUDA_FUNCTIONS(X)                                                                                                         \
    X(init, "cuInit", (unsigned))                                                                                                          \
    X(device_count, "cuDeviceGetCount", (int *))                                                                                           \
    X(device_get, "cuDeviceGet", (int *, int))                                                                                             \
    X(device_name, "cuDeviceGetName", (char *, int, int))                                                                                  \
    X(device_attribute, "cuDeviceGetAttribute", (int *, int, int))                                                                         \
    X(retain_primary, "cuDevicePrimaryCtxRetain", (Context *, int))                                                                        \
    X(release_primary, "cuDevicePrimaryCtxRelease_v2", (int))                                                                              \
    X(push, "cuCtxPushCurrent_v2", (Context))                                                                                              \
    X(pop, "cuCtxPopCurrent_v2", (Context *))                                                                                              \
    X(context_device, "cuCtxGetDevice", (int *))                                                                                           \
    X(synchronize_context, "cuCtxSynchronize", ())                                                                                         \
    X(allocate, "cuMemAlloc_v2", (Pointer *, size_t))                                                                                      \
    X(free, "cuMemFree_v2", (Pointer))                                                                                                     \
    X(copy_to_device, "cuMemcpyHtoDAsync_v2", (Pointer, const void *, size_t, Stream))                                                     \
    X(copy_to_host, "cuMemcpyDtoHAsync_v2", (void *, Pointer, size_t, Stream))                                                             \
    X(fill, "cuMemsetD32Async", (Pointer, unsigned, size_t, Stream))                                                                       \
    X(synchronize, "cuStreamSynchronize", (Stream))                                                                                        \
    X(is_capturing, "cuStreamIsCapturing", (Stream, int *))                                                                                \
    X(pointer_attribute, "cuPointerGetAttribute", (void *, int, Pointer))                                                                  \
    X(load_module, "cuModuleLoadDataEx", (Module *, const void *, unsigned, int *, void **))                                               \
    X(unload_module, "cuModuleUnload", (Module))                                                                                           \
    X(get_function, "cuModuleGetFunction", (Function *, Module, const char *))                                                             \
    X(set_function_attribute, "cuFuncSetAttribute", (Function, int, int))                                                                  \
    X(launch, "cuLaunchKernel",                                                                                                            \
      (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, void **, void **))                          \
    X(error_name, "cuGetErrorName", (int, const char **))

// Of drivers that have memory in graphs; null in others.
#define POLYHEAD_CUDA_NEWER_FUNCTIONS(X)                                                                                                   \
    X(allocate_in_order, "cuMemAllocAsync", (Pointer *, size_t, Stream))                                                                   \
    X(free_in_order, "cuMemFreeAsync", (Pointer, Stream))

struct Driver {
#define POLYHEAD_CUDA_MEMBER(member, name, arguments) int(*member) arguments;
    POLYHEAD_CUDA_FUNCTIONS(POLYHEAD_CUDA_MEMBER)
    POLYHEAD_CUDA_NEWER_FUNCTIONS(POLYHEAD_CUDA_MEMBER)
#undef POLYHEAD_CUDA_MEMBER
    void *library;
};

// Loaded and initialised on the first call that finds it; null and a status without a driver or without devices. status may be null.
const Driver *driver(polyhead_status *status) noexcept;

// "CUDA_ERROR_OUT_OF_MEMORY"
const char *error_name(const Driver &driver, int error) noexcept;

// Makes a context current while this object exists.
class Current {
public:
    Current(const Driver &driver, Context context) noexcept : driver_(driver), error_(driver.push(context)) {}
    ~Current() {
        Context context = nullptr;
        if (error_ == 0) {
            driver_.pop(&context);
        }
    }
    Current(const Current &) = delete;
    Current &operator=(const Current &) = delete;
    int error() const noexcept { return error_; }

private:
    const Driver &driver_;
    int error_;
};

} // namespace polyhead::runtime::cuda
#endif
