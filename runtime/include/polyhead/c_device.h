/* Devices in the C ABI: open one, give it memory, run kernels there. Included by c_api.h.
 *
 * A program that opens devices links libpolyhead_gpu.a and libpolyhead.a. A call runs on the device in polyhead_args.device. Drivers are
 * loaded when a device is opened, never before. Every function is thread-safe. Free everything on a device before you close it.
 *
 * A CUDA stream may be captured into a graph while calls are made on it, after an equal call before (docs/guides/gpu.md). What would wait
 * for the device is refused then: host tensors, polyhead_synchronize, allocations and copies. */
#ifndef POLYHEAD_C_DEVICE_H
#define POLYHEAD_C_DEVICE_H

#include <polyhead/c_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The device to open, optionally with the caller's context and stream. They still belong to the caller and must outlive the device. */
typedef struct polyhead_device_options {
    int32_t api;   /* polyhead_api, not POLYHEAD_CPU */
    int32_t index; /* among the devices of this api (polyhead_device_count); ignored when a context is given */
    void *context; /* CUcontext (null: the primary context of the device, which cudart and PyTorch use); cl_context; Vulkan: null */
    void *stream;  /* CUstream (null: the default stream); cl_command_queue (null: polyhead makes one); Vulkan: null */
} polyhead_device_options;

/* Devices of this api that can be opened now; 0 without a driver. */
int32_t polyhead_device_count(int32_t api);
/* Opens a device. Without a driver or such a device: POLYHEAD_NO_DEVICE, and *device is null. */
polyhead_status polyhead_open_device(const polyhead_device_options *options, polyhead_device **device);
/* Waits for the work of the device, then closes it; null is allowed. */
void polyhead_close_device(polyhead_device *device);
/* Waits until everything that was started on this device's stream is done, and reports the errors of that work. */
polyhead_status polyhead_synchronize(polyhead_device *device);
/* Writes the name to text, such as "NVIDIA H200 (cuda 9.0)". The text always ends with 0. */
void polyhead_device_name(const polyhead_device *device, char *text, size_t text_bytes);

/* Memory on the device, for polyhead_tensor.data. Allocating 0 bytes and freeing null are allowed. Not with POLYHEAD_VULKAN. */
polyhead_status polyhead_device_allocate(polyhead_device *device, size_t bytes, void **data);
void polyhead_device_free(polyhead_device *device, void *data);
/* Copies between the host and the bytes from byte_offset on. Runs in order with the kernels of the device's stream; done on return. */
polyhead_status polyhead_copy_to_device(polyhead_device *device, const void *host, size_t bytes, void *data, size_t byte_offset);
polyhead_status polyhead_copy_to_host(polyhead_device *device, const void *data, size_t byte_offset, size_t bytes, void *host);

/* Copies packed weights to the device. polyhead_weights_free frees the copy. */
polyhead_status polyhead_weights_to_device(polyhead_device *device, const polyhead_weights *host, polyhead_weights *on_device);
/* Frees weights that polyhead_weights_to_device made, and sets *weights to zero. Call it before their device is closed. */
void polyhead_weights_free(polyhead_weights *weights);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
