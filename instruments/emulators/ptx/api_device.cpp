// Driver API: start, errors, devices, contexts.
#include "state.h"

#include <algorithm>
#include <cstring>

using namespace polyhead::cuda_driver;

namespace {

constexpr int driver_version = 12040;

struct ErrorText {
    CUresult code;
    const char *name, *text;
};
const ErrorText error_texts[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {CUDA_ERROR_LAUNCH_TIMEOUT, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {CUDA_ERROR_ILLEGAL_INSTRUCTION, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {CUDA_ERROR_MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
};

const ErrorText *find_error(CUresult code) {
    const auto found =
        std::find_if(std::begin(error_texts), std::end(error_texts), [&](const ErrorText &text) { return text.code == code; });
    return found == std::end(error_texts) ? nullptr : found;
}

// Of an 8.0 device, but for the capability.
int attribute_value(const State &s, int attribute) {
    switch (attribute) {
    case 1:
    case 2:
    case 3:
        return 1024; // threads of a block, also in x and y
    case 4:
        return 64; // block z
    case 5:
        return 2147483647; // grid x
    case 6:
    case 7:
        return static_cast<int>(s.most_blocks); // grid y, z
    case 8:
        return static_cast<int>(s.shared_bytes); // of a block
    case 9:
        return 64 * 1024; // constant memory
    case 10:
        return lanes; // warp
    case 12:
    case 82:
        return 65536; // registers of a block, of a multiprocessor
    case 13:
        return 1410000; // kHz
    case 16:
        return 4; // multiprocessors
    case 31:
    case 40:
    case 41:
        return 1; // concurrent kernels, copy engines, unified addresses
    case 36:
        return 1215000; // memory clock, kHz
    case 37:
        return 5120; // memory bus, bits
    case 38:
        return 40 * 1024 * 1024; // L2
    case 39:
        return 2048; // threads of a multiprocessor
    case 75:
        return s.capability / 10;
    case 76:
        return s.capability % 10;
    case 81:
        return static_cast<int>(s.most_shared) + 1024; // shared memory of a multiprocessor
    case 97:
        return static_cast<int>(s.most_shared); // of a block that asked for it
    default:
        return 0;
    }
}

} // namespace

CUresult cuInit(unsigned flags) {
    const Called called(__func__);
    State &s = state();
    const std::lock_guard<std::recursive_mutex> guard(s.lock);
    if (flags != 0) {
        return s.fail(CUDA_ERROR_INVALID_VALUE, "cuInit takes no flags");
    }
    if (!s.initialised) {
        s.start();
    }
    return s.devices.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
    if (!version) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *version = driver_version;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **text) {
    const Called called(__func__);
    const ErrorText *found = find_error(error);
    *text = found ? found->name : nullptr;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    const ErrorText *found = find_error(error);
    *text = found ? found->text : nullptr;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuProfilerStart() {
    return CUDA_SUCCESS;
}
CUresult cuProfilerStop() {
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    CUDA_DRIVER_ENTER
    *count = static_cast<int>(s.devices.size());
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    CUDA_DRIVER_ENTER
    if (!s.is_device(ordinal)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int bytes, CUdevice device) {
    CUDA_DRIVER_ENTER
    if (!s.is_device(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!name || bytes <= 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::strncpy(name, "PTX interpreter", static_cast<size_t>(bytes));
    name[bytes - 1] = 0;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    CUDA_DRIVER_ENTER
    if (!s.is_device(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!value || attribute <= 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *value = attribute_value(s, attribute);
    return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
    const Called called(__func__);
    const CUresult result = cuDeviceGetAttribute(major, 75, device);
    return result == CUDA_SUCCESS ? cuDeviceGetAttribute(minor, 76, device) : result;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    CUDA_DRIVER_ENTER
    if (!s.is_device(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *bytes = s.devices[static_cast<size_t>(device)].memory.limit();
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    CUDA_DRIVER_ENTER
    if (!s.is_device(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    Device &owner = s.devices[static_cast<size_t>(device)];
    if (!owner.primary) {
        owner.primary = s.make_context(device);
    }
    owner.primary_users++;
    *context = owner.primary;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    CUDA_DRIVER_ENTER
    if (!s.is_device(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    Device &owner = s.devices[static_cast<size_t>(device)];
    if (owner.primary) {
        s.drop_context(owner.primary);
        owner.primary = nullptr;
        owner.primary_users = 0;
    }
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    CUDA_DRIVER_ENTER
    if (!s.is_device(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    Device &owner = s.devices[static_cast<size_t>(device)];
    if (owner.primary_users == 0) {
        return s.fail(CUDA_ERROR_INVALID_CONTEXT, "the primary context is released more often than retained");
    }
    return --owner.primary_users == 0 ? cuDevicePrimaryCtxReset_v2(device) : CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    const Called called(__func__);
    return cuDevicePrimaryCtxRelease_v2(device);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    CUDA_DRIVER_ENTER
    if (!s.is_device(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *flags = 0;
    *active = s.devices[static_cast<size_t>(device)].primary ? 1 : 0;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned, CUdevice device) {
    CUDA_DRIVER_ENTER
    if (!s.is_device(device)) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *context = s.make_context(device);
    context_stack().push_back(*context);
    return CUDA_SUCCESS;
}

CUresult cuCtxDestroy_v2(CUcontext context) {
    CUDA_DRIVER_ENTER
    if (!s.contexts.count(context)) {
        return s.fail(CUDA_ERROR_INVALID_CONTEXT, "cuCtxDestroy: there is no such context");
    }
    for (const Device &device : s.devices) {
        if (device.primary == context) {
            return s.fail(CUDA_ERROR_INVALID_CONTEXT, "cuCtxDestroy: a primary context is released, not destroyed");
        }
    }
    if (!context_stack().empty() && context_stack().back() == context) {
        context_stack().pop_back();
    }
    s.drop_context(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    CUDA_DRIVER_ENTER
    if (!s.contexts.count(context)) {
        return s.fail(CUDA_ERROR_INVALID_CONTEXT, "cuCtxPushCurrent: there is no such context");
    }
    context_stack().push_back(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    CUDA_DRIVER_ENTER
    if (context_stack().empty()) {
        return s.fail(CUDA_ERROR_INVALID_CONTEXT, "cuCtxPopCurrent: this thread has no current context");
    }
    if (context) {
        *context = context_stack().back();
    }
    context_stack().pop_back();
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    CUDA_DRIVER_ENTER
    *context = current_context();
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    CUDA_DRIVER_ENTER
    if (context && !s.contexts.count(context)) {
        return s.fail(CUDA_ERROR_INVALID_CONTEXT, "cuCtxSetCurrent: there is no such context");
    }
    if (!context_stack().empty()) {
        context_stack().pop_back();
    }
    if (context) {
        context_stack().push_back(context);
    }
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    CUDA_DRIVER_ENTER_CONTEXT
    *device = context->device;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext given, unsigned *version) {
    CUDA_DRIVER_ENTER
    if (!(given ? s.contexts.count(given) != 0 : current_context() != nullptr)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    *version = 3020;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
    CUDA_DRIVER_ENTER_CONTEXT
    if (const CUresult captured = s.refuse_in_capture(__func__)) {
        return captured;
    }
    return CUDA_SUCCESS;
}
