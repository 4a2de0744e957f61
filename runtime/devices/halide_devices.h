// The functions of Halide's runtime for devices as this library has them. In ELF objects their names begin with polyhead_halide_
// (tools/elf_symbols.h), so that they do not meet those of another Halide in the program.
#ifndef POLYHEAD_RUNTIME_GPU_HALIDE_DEVICES_H
#define POLYHEAD_RUNTIME_GPU_HALIDE_DEVICES_H

#include <HalideRuntimeCuda.h>
#include <HalideRuntimeOpenCL.h>
#include <HalideRuntimeVulkan.h>

#include "../kernel_interface.h"

#ifdef __ELF__
#define POLYHEAD_OWN_HALIDE(name) decltype(name) name __asm__("polyhead_" #name)
#else
#define POLYHEAD_OWN_HALIDE(name) decltype(name) name
#endif

extern "C" {
// In no header of Halide 21.
int halide_acquire_cl_context(void *user_context, void **context, void **queue, bool create);
int halide_release_cl_context(void *user_context);
int halide_cuda_acquire_context(void *user_context, void **context, bool create);
int halide_cuda_release_context(void *user_context);
int halide_cuda_get_stream(void *user_context, void *context, void **stream);
void *halide_cuda_get_symbol(void *user_context, const char *name);
int halide_cuda_device_malloc(void *user_context, struct halide_buffer_t *buffer);
int halide_cuda_device_free(void *user_context, struct halide_buffer_t *buffer);
void halide_vulkan_set_alloc_config(const char *text);

POLYHEAD_OWN_HALIDE(halide_copy_to_device);
POLYHEAD_OWN_HALIDE(halide_copy_to_host);
POLYHEAD_OWN_HALIDE(halide_device_free);
POLYHEAD_OWN_HALIDE(halide_device_malloc);
POLYHEAD_OWN_HALIDE(halide_device_sync_global);
POLYHEAD_OWN_HALIDE(halide_set_custom_print);
POLYHEAD_OWN_HALIDE(halide_acquire_cl_context);
POLYHEAD_OWN_HALIDE(halide_cuda_acquire_context);
POLYHEAD_OWN_HALIDE(halide_cuda_device_free);
POLYHEAD_OWN_HALIDE(halide_cuda_device_interface);
POLYHEAD_OWN_HALIDE(halide_cuda_device_malloc);
POLYHEAD_OWN_HALIDE(halide_cuda_finalize_kernels);
POLYHEAD_OWN_HALIDE(halide_cuda_get_stream);
POLYHEAD_OWN_HALIDE(halide_cuda_get_symbol);
POLYHEAD_OWN_HALIDE(halide_cuda_initialize_kernels);
POLYHEAD_OWN_HALIDE(halide_cuda_release_context);
POLYHEAD_OWN_HALIDE(halide_cuda_run);
POLYHEAD_OWN_HALIDE(halide_opencl_device_interface);
POLYHEAD_OWN_HALIDE(halide_opencl_finalize_kernels);
POLYHEAD_OWN_HALIDE(halide_opencl_get_build_options);
POLYHEAD_OWN_HALIDE(halide_opencl_initialize_kernels);
POLYHEAD_OWN_HALIDE(halide_opencl_run);
POLYHEAD_OWN_HALIDE(halide_release_cl_context);
POLYHEAD_OWN_HALIDE(halide_set_cuda_acquire_context);
POLYHEAD_OWN_HALIDE(halide_set_cuda_get_stream);
POLYHEAD_OWN_HALIDE(halide_set_cuda_release_context);
POLYHEAD_OWN_HALIDE(halide_vulkan_device_interface);
POLYHEAD_OWN_HALIDE(halide_vulkan_set_alloc_config);
}

namespace polyhead::runtime {

// Of a kernel of a device: Halide passes every number, and the strides and extents of tensors, as arguments of their own.
constexpr size_t most_arguments = 128;
constexpr const char *too_many_arguments = "more than 128 arguments";

// The same tensor in Halide's words; their layouts are equal.
inline halide_buffer_t *for_halide(KernelBuffer *buffer) noexcept {
    return reinterpret_cast<halide_buffer_t *>(buffer);
}

} // namespace polyhead::runtime

#endif
