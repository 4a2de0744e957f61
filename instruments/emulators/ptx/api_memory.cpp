// Driver API: memory and copies. Streams do everything at once, so an asynchronous copy is a copy, unless the stream is captured.
#include "state.h"

#include <algorithm>
#include <cstring>

using namespace polyhead::cuda_driver;

namespace {

// Null with the sentence set when these bytes are not all of one allocation.
char *device_bytes(State &s, CUdeviceptr address, size_t bytes, const char *function) {
    Device *device = s.owner(address, bytes);
    if (!device) {
        s.fail(CUDA_ERROR_INVALID_VALUE, std::string(function) + ": " + std::to_string(bytes) + " bytes at " + std::to_string(address) +
                                             " are not memory of a device: " + s.devices[0].memory.describe(address));
        return nullptr;
    }
    Allocation *allocation = device->memory.find(address, bytes);
    return allocation->host.get() + (address - allocation->begin);
}

// Device addresses are not mapped in this process; a host pointer with such a value is an error of the caller.
bool is_host(State &s, const void *pointer, const char *function) {
    const bool host = pointer && reinterpret_cast<uintptr_t>(pointer) < shared_window;
    if (!host) {
        s.fail(CUDA_ERROR_INVALID_VALUE, std::string(function) + ": the host pointer is null or an address of a device");
    }
    return host;
}

CUresult fill(CUdeviceptr to, const void *value, size_t width, size_t count) {
    CUDA_DRIVER_ENTER_CONTEXT
    char *bytes = device_bytes(s, to, width * count, "cuMemset");
    if (!bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t index = 0; index < count; index++) {
        std::memcpy(bytes + index * width, value, width);
    }
    return CUDA_SUCCESS;
}

CUresult pointer_attribute(State &s, void *value, int attribute, CUdeviceptr address) {
    Device *device = s.owner(address, 1);
    if (!device) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const Allocation *allocation = device->memory.find(address, 1);
    const auto give = [&](auto what) {
        std::memcpy(value, &what, sizeof(what));
        return CUDA_SUCCESS;
    };
    switch (attribute) {
    case 1:
        return give(allocation->owner); // context
    case 2:
        return give(2u); // memory type: device
    case 3:
        return give(address); // device pointer
    case 8:
        return give(0); // managed
    case 9:
        return give(static_cast<int>(device - s.devices.data())); // ordinal
    case 11:
        return give(allocation->begin);
    case 12:
        return give(static_cast<size_t>(allocation->end - allocation->begin));
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

// What is given to a stream: done at once, or kept for the graph that the stream is captured into.
template <typename Work> CUresult in_order(State &s, CUstream stream, const Work &work) {
    const CUresult valid = s.check_stream(stream);
    if (valid != CUDA_SUCCESS) {
        return valid;
    }
    if (CUgraph_st *graph = s.capture_of(stream)) {
        graph->work.emplace_back(work);
        return CUDA_SUCCESS;
    }
    return work();
}

} // namespace

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    CUDA_DRIVER_ENTER_CONTEXT
    if (const CUresult captured = s.refuse_in_capture(__func__)) {
        return captured;
    }
    if (!address || bytes == 0) {
        return s.fail(CUDA_ERROR_INVALID_VALUE, "cuMemAlloc: 0 bytes");
    }
    DeviceMemory &memory = s.devices[static_cast<size_t>(context->device)].memory;
    const uint64_t found = memory.allocate(bytes, context);
    if (found == 0) {
        return s.fail(CUDA_ERROR_OUT_OF_MEMORY,
                      "cuMemAlloc: " + std::to_string(bytes) + " bytes, " + std::to_string(memory.limit() - memory.used()) + " are left");
    }
    *address = found;
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    CUDA_DRIVER_ENTER_CONTEXT
    if (const CUresult captured = s.refuse_in_capture(__func__)) {
        return captured;
    }
    if (address == 0) {
        return CUDA_SUCCESS;
    }
    for (Device &device : s.devices) {
        if (device.memory.release(address)) {
            return CUDA_SUCCESS;
        }
    }
    return s.fail(CUDA_ERROR_INVALID_VALUE, "cuMemFree: the address is not the beginning of an allocation");
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    CUDA_DRIVER_ENTER_CONTEXT
    const DeviceMemory &memory = s.devices[static_cast<size_t>(context->device)].memory;
    *free_bytes = memory.limit() - memory.used();
    *total = memory.limit();
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *begin, size_t *bytes, CUdeviceptr address) {
    CUDA_DRIVER_ENTER_CONTEXT
    Device *device = s.owner(address, 1);
    if (!device) {
        return CUDA_ERROR_NOT_FOUND;
    }
    const Allocation *allocation = device->memory.find(address, 1);
    if (begin) {
        *begin = allocation->begin;
    }
    if (bytes) {
        *bytes = allocation->end - allocation->begin;
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr address) {
    CUDA_DRIVER_ENTER
    return pointer_attribute(s, value, attribute, address);
}

// As in the real driver: an unknown pointer is not an error here; its values are 0.
CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **values, CUdeviceptr address) {
    CUDA_DRIVER_ENTER
    for (unsigned index = 0; index < count; index++) {
        const CUresult result = pointer_attribute(s, values[index], attributes[index], address);
        if (result == CUDA_ERROR_NOT_SUPPORTED) {
            return result;
        }
        if (result != CUDA_SUCCESS) {
            const bool wide = attributes[index] != 2 && attributes[index] != 8 && attributes[index] != 9;
            std::memset(values[index], 0, wide ? 8 : 4);
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    CUDA_DRIVER_ENTER_CONTEXT
    if (const CUresult captured = s.refuse_in_capture(__func__)) {
        return captured;
    }
    char *device = device_bytes(s, to, bytes, "cuMemcpyHtoD");
    if (!device || !is_host(s, from, "cuMemcpyHtoD")) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::memcpy(device, from, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    CUDA_DRIVER_ENTER_CONTEXT
    if (const CUresult captured = s.refuse_in_capture(__func__)) {
        return captured;
    }
    const char *device = device_bytes(s, from, bytes, "cuMemcpyDtoH");
    if (!device || !is_host(s, to, "cuMemcpyDtoH")) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::memcpy(to, device, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    CUDA_DRIVER_ENTER_CONTEXT
    if (const CUresult captured = s.refuse_in_capture(__func__)) {
        return captured;
    }
    char *target = device_bytes(s, to, bytes, "cuMemcpyDtoD");
    const char *source = device_bytes(s, from, bytes, "cuMemcpyDtoD");
    if (!target || !source) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::memmove(target, source, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    CUDA_DRIVER_ENTER_CONTEXT
    return in_order(s, stream, [=] { return cuMemcpyHtoD_v2(to, from, bytes); });
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    CUDA_DRIVER_ENTER_CONTEXT
    return in_order(s, stream, [=] { return cuMemcpyDtoH_v2(to, from, bytes); });
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    CUDA_DRIVER_ENTER_CONTEXT
    return in_order(s, stream, [=] { return cuMemcpyDtoD_v2(to, from, bytes); });
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *copy) {
    CUDA_DRIVER_ENTER_CONTEXT
    if (const CUresult captured = s.refuse_in_capture(__func__)) {
        return captured;
    }
    const CUDA_MEMCPY3D &c = *copy;
    const bool known = (c.srcMemoryType == 1 || c.srcMemoryType == 2) && (c.dstMemoryType == 1 || c.dstMemoryType == 2);
    if (!known || c.srcLOD != 0 || c.dstLOD != 0) {
        return s.fail(CUDA_ERROR_NOT_SUPPORTED, "cuMemcpy3D: only between host and device memory");
    }
    for (size_t z = 0; z < c.Depth; z++) {
        for (size_t y = 0; y < c.Height; y++) {
            const size_t from = ((z + c.srcZ) * c.srcHeight + y + c.srcY) * c.srcPitch + c.srcXInBytes;
            const size_t to = ((z + c.dstZ) * c.dstHeight + y + c.dstY) * c.dstPitch + c.dstXInBytes;
            const char *source = c.srcMemoryType == 1 ? static_cast<const char *>(c.srcHost) + from
                                                      : device_bytes(s, c.srcDevice + from, c.WidthInBytes, "cuMemcpy3D");
            char *target = c.dstMemoryType == 1 ? static_cast<char *>(c.dstHost) + to
                                                : device_bytes(s, c.dstDevice + to, c.WidthInBytes, "cuMemcpy3D");
            if (!source || !target) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            std::memmove(target, source, c.WidthInBytes);
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
    CUDA_DRIVER_ENTER
    const CUresult captured = s.refuse_in_capture(__func__);
    return captured ? captured : fill(to, &value, 1, count);
}
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
    CUDA_DRIVER_ENTER
    const CUresult captured = s.refuse_in_capture(__func__);
    return captured ? captured : fill(to, &value, 4, count);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
    CUDA_DRIVER_ENTER_CONTEXT
    return in_order(s, stream, [=] { return fill(to, &value, 1, count); });
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
    CUDA_DRIVER_ENTER_CONTEXT
    return in_order(s, stream, [=] { return fill(to, &value, 4, count); });
}

// Memory in the order of a stream. Of a stream that is captured it is a part of the graph, and exists as long.
CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream) {
    CUDA_DRIVER_ENTER_CONTEXT
    const CUresult valid = s.check_stream(stream);
    const CUresult made = valid == CUDA_SUCCESS ? cuMemAlloc_v2(address, bytes) : valid;
    CUgraph_st *graph = s.capture_of(stream);
    if (made == CUDA_SUCCESS && graph) {
        graph->memory.push_back(*address);
    }
    return made;
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    CUDA_DRIVER_ENTER_CONTEXT
    const CUgraph_st *graph = s.capture_of(stream);
    const bool of_graph = graph && std::find(graph->memory.begin(), graph->memory.end(), address) != graph->memory.end();
    if (graph && !of_graph) {
        return s.fail(CUDA_ERROR_INVALID_VALUE, "cuMemFreeAsync: not allocated in this capture");
    }
    return of_graph ? CUDA_SUCCESS : cuMemFree_v2(address);
}
