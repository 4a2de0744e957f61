// The C functions of an open device, and packed weights on one. Devices are opened in runtime/devices.
#include "device.h"

#include <cstdio>

#include "../../contract/weight_layout.h"
#include "../status.h"
#include "call_guard.h"

namespace {

using polyhead::runtime::failure;
using polyhead::runtime::success;

// False and a status when this process cannot use the device.
bool usable(const polyhead_device *device, polyhead_status *status) noexcept {
    if (!device) {
        return polyhead::runtime::refuse(status, POLYHEAD_NULL_POINTER, "device: null pointer, expected an open device");
    }
    if (!device->usable()) {
        *status = polyhead::runtime::device_of_parent(device->name);
        return false;
    }
    *status = success();
    return true;
}

polyhead_status no_memory(const char *name) noexcept {
    return failure(POLYHEAD_NULL_POINTER, "%s: null pointer, expected memory", name);
}

} // namespace

void polyhead_close_device(polyhead_device *device) {
    const polyhead::runtime::CallGuard guard;
    if (device && device->usable()) { // otherwise its handles are the parent's
        delete device;
    }
}

polyhead_status polyhead_synchronize(polyhead_device *device) {
    const polyhead::runtime::CallGuard guard;
    polyhead_status status;
    return usable(device, &status) ? device->synchronize() : status;
}

void polyhead_device_name(const polyhead_device *device, char *text, size_t text_bytes) {
    const polyhead::runtime::CallGuard guard;
    if (text && text_bytes > 0) {
        std::snprintf(text, text_bytes, "%s", device ? device->name : "no device");
    }
}

polyhead_status polyhead_device_allocate(polyhead_device *device, size_t bytes, void **data) {
    const polyhead::runtime::CallGuard guard;
    if (!data) {
        return no_memory("data");
    }
    *data = nullptr;
    polyhead_status status;
    return usable(device, &status) && bytes > 0 ? device->allocate(bytes, data) : status;
}

void polyhead_device_free(polyhead_device *device, void *data) {
    const polyhead::runtime::CallGuard guard;
    if (device && data && device->usable()) {
        device->free(data);
    }
}

polyhead_status polyhead_copy_to_device(polyhead_device *device, const void *host, size_t bytes, void *data, size_t byte_offset) {
    const polyhead::runtime::CallGuard guard;
    polyhead_status status;
    if (!usable(device, &status) || bytes == 0) {
        return status;
    }
    return !host ? no_memory("host") : !data ? no_memory("data") : device->copy_to_device(host, bytes, data, byte_offset);
}

polyhead_status polyhead_copy_to_host(polyhead_device *device, const void *data, size_t byte_offset, size_t bytes, void *host) {
    const polyhead::runtime::CallGuard guard;
    polyhead_status status;
    if (!usable(device, &status) || bytes == 0) {
        return status;
    }
    return !host ? no_memory("host") : !data ? no_memory("data") : device->copy_to_host(data, byte_offset, bytes, host);
}

polyhead_status polyhead_weights_to_device(polyhead_device *device, const polyhead_weights *host, polyhead_weights *on_device) {
    const polyhead::runtime::CallGuard guard;
    polyhead_status status;
    if (!usable(device, &status)) {
        return status;
    }
    if (!host || !host->data) {
        return failure(POLYHEAD_NULL_POINTER, "weights: null pointer, expected packed weights (pack them first)");
    }
    if (!on_device) {
        return failure(POLYHEAD_NULL_POINTER, "on_device: null pointer, expected a polyhead_weights to fill");
    }
    if (host->device) {
        return failure(POLYHEAD_WRONG_DEVICE, "weights: lie on device %s, expected host memory", host->device->name);
    }
    void *data = nullptr;
    status = polyhead_device_allocate(device, host->bytes, &data);
    if (status.code == POLYHEAD_OK) {
        status = polyhead_copy_to_device(device, host->data, host->bytes, data, 0);
    }
    if (status.code != POLYHEAD_OK) {
        polyhead_device_free(device, data);
        return status;
    }
    *on_device = {data, host->bytes, host->layout, host->panel, host->dtype, device};
    return status;
}

void polyhead_weights_free(polyhead_weights *weights) {
    const polyhead::runtime::CallGuard guard;
    if (!weights || !weights->device) {
        return;
    }
    // The handle is const in the struct because calls only compare it; the memory is its device's to free.
    polyhead_device_free(const_cast<polyhead_device *>(weights->device), const_cast<void *>(weights->data));
    *weights = polyhead_weights{};
}
