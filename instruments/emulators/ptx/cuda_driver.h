// What this driver exports: the part of the CUDA driver API that it has, and what tests may ask it beyond that.
#ifndef POLYHEAD_INSTRUMENTS_CUDA_DRIVER_H
#define POLYHEAD_INSTRUMENTS_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define CUDA_DRIVER_EXPORT __attribute__((visibility("default")))
#else
#define CUDA_DRIVER_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum CUresult {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_IMAGE = 200,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERROR_INVALID_PTX = 218,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
    CUDA_ERROR_LAUNCH_TIMEOUT = 702,
    CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
    CUDA_ERROR_MISALIGNED_ADDRESS = 716,
    CUDA_ERROR_LAUNCH_FAILED = 719,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901
} CUresult;

typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

typedef struct CUDA_MEMCPY3D {
    size_t srcXInBytes, srcY, srcZ, srcLOD;
    int srcMemoryType; /* 1 host, 2 device, 4 either */
    const void *srcHost;
    CUdeviceptr srcDevice;
    void *srcArray, *reserved0;
    size_t srcPitch, srcHeight;
    size_t dstXInBytes, dstY, dstZ, dstLOD;
    int dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    void *dstArray, *reserved1;
    size_t dstPitch, dstHeight;
    size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;

CUDA_DRIVER_EXPORT CUresult cuInit(unsigned flags);
CUDA_DRIVER_EXPORT CUresult cuDriverGetVersion(int *version);
CUDA_DRIVER_EXPORT CUresult cuGetErrorName(CUresult error, const char **text);
CUDA_DRIVER_EXPORT CUresult cuGetErrorString(CUresult error, const char **text);
CUDA_DRIVER_EXPORT CUresult cuProfilerStart(void);
CUDA_DRIVER_EXPORT CUresult cuProfilerStop(void);

CUDA_DRIVER_EXPORT CUresult cuDeviceGetCount(int *count);
CUDA_DRIVER_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUDA_DRIVER_EXPORT CUresult cuDeviceGetName(char *name, int bytes, CUdevice device);
CUDA_DRIVER_EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device);
CUDA_DRIVER_EXPORT CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device);
CUDA_DRIVER_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);

CUDA_DRIVER_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUDA_DRIVER_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device);
CUDA_DRIVER_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUDA_DRIVER_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);
CUDA_DRIVER_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active);
CUDA_DRIVER_EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUDA_DRIVER_EXPORT CUresult cuCtxDestroy_v2(CUcontext context);
CUDA_DRIVER_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context);
CUDA_DRIVER_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context);
CUDA_DRIVER_EXPORT CUresult cuCtxGetCurrent(CUcontext *context);
CUDA_DRIVER_EXPORT CUresult cuCtxSetCurrent(CUcontext context);
CUDA_DRIVER_EXPORT CUresult cuCtxGetDevice(CUdevice *device);
CUDA_DRIVER_EXPORT CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version);
CUDA_DRIVER_EXPORT CUresult cuCtxSynchronize(void);

CUDA_DRIVER_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
CUDA_DRIVER_EXPORT CUresult cuMemFree_v2(CUdeviceptr address);
CUDA_DRIVER_EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total);
CUDA_DRIVER_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *begin, size_t *bytes, CUdeviceptr address);
CUDA_DRIVER_EXPORT CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr address);
CUDA_DRIVER_EXPORT CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **values, CUdeviceptr address);
CUDA_DRIVER_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
CUDA_DRIVER_EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);
CUDA_DRIVER_EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes);
CUDA_DRIVER_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream);
CUDA_DRIVER_EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
CUDA_DRIVER_EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
CUDA_DRIVER_EXPORT CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *copy);
CUDA_DRIVER_EXPORT CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count);
CUDA_DRIVER_EXPORT CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count);
CUDA_DRIVER_EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream);
CUDA_DRIVER_EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream);

CUDA_DRIVER_EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags);
CUDA_DRIVER_EXPORT CUresult cuStreamDestroy_v2(CUstream stream);
CUDA_DRIVER_EXPORT CUresult cuStreamSynchronize(CUstream stream);
CUDA_DRIVER_EXPORT CUresult cuStreamQuery(CUstream stream);
CUDA_DRIVER_EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
CUDA_DRIVER_EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext *context);
CUDA_DRIVER_EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags);
CUDA_DRIVER_EXPORT CUresult cuEventDestroy_v2(CUevent event);
CUDA_DRIVER_EXPORT CUresult cuEventRecord(CUevent event, CUstream stream);
CUDA_DRIVER_EXPORT CUresult cuEventSynchronize(CUevent event);
CUDA_DRIVER_EXPORT CUresult cuEventQuery(CUevent event);
CUDA_DRIVER_EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to);

/* Of graphs: streams are captured, and graphs are started. Whatever waits, or allocates or frees at once, fails while a stream is captured,
   as in the mode "global" of the real driver. */
CUDA_DRIVER_EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUDA_DRIVER_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUDA_DRIVER_EXPORT CUresult cuStreamIsCapturing(CUstream stream, int *status);
CUDA_DRIVER_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags);
CUDA_DRIVER_EXPORT CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream);
CUDA_DRIVER_EXPORT CUresult cuGraphExecDestroy(CUgraphExec executable);
CUDA_DRIVER_EXPORT CUresult cuGraphDestroy(CUgraph graph);
CUDA_DRIVER_EXPORT CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream);
CUDA_DRIVER_EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream);

CUDA_DRIVER_EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUDA_DRIVER_EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *options, void **values);
CUDA_DRIVER_EXPORT CUresult cuModuleUnload(CUmodule module);
CUDA_DRIVER_EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUDA_DRIVER_EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name);
CUDA_DRIVER_EXPORT CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function);
CUDA_DRIVER_EXPORT CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value);
CUDA_DRIVER_EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                                           unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **parameters,
                                           void **extra);

/* Not of CUDA: what tests ask. All state is that of the process. */

/* The sentence about the last failure ("" when there was none): which kernel, PTX line, statement, thread, address. Valid until the next
   call of the driver on this thread. */
CUDA_DRIVER_EXPORT const char *polyhead_cuda_driver_error(void);
/* How many instructions warps have executed whose opcode is this, or begins with it and a dot: "fma", "ld.shared". "": all. */
CUDA_DRIVER_EXPORT uint64_t polyhead_cuda_driver_executed(const char *opcode);
/* The same for each of the threads of the warps. */
CUDA_DRIVER_EXPORT uint64_t polyhead_cuda_driver_executed_threads(const char *opcode);
/* With POLYHEAD_CUDA_DRIVER_TRAFFIC=1: for "ld.global" and "st.global" the sectors of 32 bytes that were touched (a warp that reads 32
   neighbouring floats touches 4), for "ld.shared" and "st.shared" the passes over the banks (1 without conflicts, 4 for v4.b32). */
CUDA_DRIVER_EXPORT uint64_t polyhead_cuda_driver_traffic(const char *opcode);
/* Lines "opcode warps threads [traffic]", sorted, as they also go to the file POLYHEAD_CUDA_DRIVER_STATISTICS when the process ends; the
 * bytes that the whole text needs with its 0. */
CUDA_DRIVER_EXPORT size_t polyhead_cuda_driver_statistics(char *text, size_t bytes);
CUDA_DRIVER_EXPORT void polyhead_cuda_driver_reset_statistics(void);
/* How often a program has called this function of the API, without _v2; "": all functions. What functions call of each other, and those
   below, do not count. */
CUDA_DRIVER_EXPORT uint64_t polyhead_cuda_driver_calls(const char *function);
/* 0: from now on launches are checked and counted, and do nothing, so that a program can time itself and count its own allocations. */
CUDA_DRIVER_EXPORT void polyhead_cuda_driver_execute(int executes);
/* Launches on this stream of this context; stream 0 is the default stream. Null context: those of all contexts and streams. */
CUDA_DRIVER_EXPORT uint64_t polyhead_cuda_driver_launches(CUcontext context, CUstream stream);
/* Bytes and number of the allocations on all devices; contexts that exist. */
CUDA_DRIVER_EXPORT uint64_t polyhead_cuda_driver_memory_in_use(void);
CUDA_DRIVER_EXPORT uint64_t polyhead_cuda_driver_allocations(void);
CUDA_DRIVER_EXPORT uint64_t polyhead_cuda_driver_contexts(void);
/* Modules that are loaded. */
CUDA_DRIVER_EXPORT uint64_t polyhead_cuda_driver_modules(void);
/* CU_JIT_MAX_REGISTERS of the last module that was loaded; 0 when the caller did not say. */
CUDA_DRIVER_EXPORT int polyhead_cuda_driver_max_registers(void);
/* Forgets everything, also what handles stand for, and reads the environment again at the next cuInit:
   POLYHEAD_CUDA_DRIVER_DEVICES (1), POLYHEAD_CUDA_DRIVER_CAPABILITY (80), POLYHEAD_CUDA_DRIVER_MEMORY (bytes per device, 1 GiB),
   POLYHEAD_CUDA_DRIVER_TRAFFIC (0), POLYHEAD_CUDA_DRIVER_STEPS (warp instructions of one launch, 10^11), POLYHEAD_CUDA_DRIVER_WAIT
   (milliseconds that waiting for a stream takes, 0), POLYHEAD_CUDA_DRIVER_BLOCKS (blocks of a grid in y and z, 65535),
   POLYHEAD_CUDA_DRIVER_QUIET (1: no failure on stderr). */
CUDA_DRIVER_EXPORT void polyhead_cuda_driver_restart(void);

#ifdef __cplusplus
}
#endif
#endif
