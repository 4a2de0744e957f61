// Finds OpenCL devices and opens them, with the caller's context and queue or with new ones.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <vector>

#include "../status.h"
#include "apis.h"
#include "opencl_device.h"
#include "opencl_programs.h"

namespace polyhead::runtime {
namespace opencl {
namespace {

enum : unsigned {
    platform_name = 0x0902,
    device_type = 0x1000,
    device_name = 0x102B,
    device_platform = 0x1031,
    context_devices = 0x1081,
    queue_context = 0x1090,
    queue_device = 0x1091,
    queue_properties = 0x1093,
};
constexpr uint64_t type_gpu = 4, type_all = 0xFFFFFFFF, out_of_order = 1;

std::vector<Object> all_platforms(const Driver &functions) {
    unsigned count = 0;
    if (functions.platforms(0, nullptr, &count) != 0) {
        return {};
    }
    std::vector<Object> platforms(count);
    return functions.platforms(count, platforms.data(), nullptr) == 0 ? platforms : std::vector<Object>();
}

// The devices of all platforms, GPUs first.
std::vector<Object> all_devices(const Driver &functions) {
    std::vector<Object> devices;
    for (const Object platform : all_platforms(functions)) {
        unsigned count = 0;
        if (functions.devices(platform, type_all, 0, nullptr, &count) != 0 || count == 0) {
            continue;
        }
        std::vector<Object> some(count);
        if (functions.devices(platform, type_all, count, some.data(), nullptr) == 0) {
            devices.insert(devices.end(), some.begin(), some.end());
        }
    }
    std::stable_partition(devices.begin(), devices.end(), [&](Object device) {
        uint64_t type = 0;
        functions.device_info(device, device_type, sizeof type, &type, nullptr);
        return (type & type_gpu) != 0;
    });
    return devices;
}

void describe(const Driver &functions, Object device, char *text, size_t bytes) noexcept {
    char model[96] = "device", platform_text[48] = "";
    Object platform = nullptr;
    functions.device_info(device, device_name, sizeof model, model, nullptr);
    functions.device_info(device, device_platform, sizeof platform, &platform, nullptr);
    model[sizeof model - 1] = 0;
    if (platform && functions.platform_info(platform, platform_name, sizeof platform_text, platform_text, nullptr) != 0) {
        platform_text[0] = 0;
    }
    std::snprintf(text, bytes, "%s (opencl, %s)", model, platform_text[0] ? platform_text : "a platform with a long name");
}

// What a device is opened with; what is null will be made.
struct Parts {
    Object device = nullptr, context = nullptr, queue = nullptr;
};

// True when the first word of an object is the first word of a platform. Only then may the object be given to the loader.
bool known_object(const Driver &functions, const void *object) {
    uintptr_t word = 0, platform_word = 0;
    if (!first_word(object, &word)) {
        return false;
    }
    const std::vector<Object> platforms = all_platforms(functions);
    return std::any_of(platforms.begin(), platforms.end(),
                       [&](const void *platform) { return first_word(platform, &platform_word) && word == platform_word; });
}

bool parts_of_queue(const Driver &functions, void *queue, Parts *parts, polyhead_status *status) {
    uint64_t properties = 0;
    Object context = nullptr;
    if (!known_object(functions, queue) || functions.queue_info(queue, queue_context, sizeof context, &context, nullptr) != 0) {
        return refuse(status, POLYHEAD_NO_DEVICE, "stream: %p is not a cl_command_queue", queue);
    }
    if (parts->context && parts->context != context) {
        return refuse(status, POLYHEAD_NO_DEVICE, "stream: a queue of another context, expected one of the context that was given");
    }
    functions.queue_info(queue, queue_properties, sizeof properties, &properties, nullptr);
    if (properties & out_of_order) {
        return refuse(status, POLYHEAD_NO_DEVICE, "stream: a queue that runs out of order, expected one that runs in order");
    }
    parts->queue = queue;
    parts->context = context;
    functions.queue_info(queue, queue_device, sizeof parts->device, &parts->device, nullptr);
    return true;
}

bool check_context(const Driver &functions, Parts *parts, polyhead_status *status) {
    Object device = nullptr;
    size_t bytes = 0;
    if (!known_object(functions, parts->context) || functions.context_info(parts->context, context_devices, 0, nullptr, &bytes) != 0) {
        return refuse(status, POLYHEAD_NO_DEVICE, "context: %p is not a cl_context", parts->context);
    }
    if (bytes != sizeof device) { // Halide compiles for the one device of a context
        return refuse(status, POLYHEAD_NO_DEVICE, "context: of %zu devices, expected 1", bytes / sizeof device);
    }
    functions.context_info(parts->context, context_devices, sizeof device, &device, nullptr);
    parts->device = device;
    return true;
}

bool choose(const Driver &functions, int index, Parts *parts, polyhead_status *status) {
    const std::vector<Object> devices = all_devices(functions);
    if (index < 0 || index >= static_cast<int>(devices.size())) {
        return refuse(status, POLYHEAD_NO_DEVICE, "opencl: device %d, expected %s%d", index, devices.empty() ? "none: there are " : "0 to ",
                      devices.empty() ? 0 : static_cast<int>(devices.size()) - 1);
    }
    parts->device = devices[static_cast<size_t>(index)];
    return true;
}

bool find_parts(const Driver &functions, const polyhead_device_options &options, Parts *parts, polyhead_status *status) {
    parts->context = options.context;
    if (options.context && !check_context(functions, parts, status)) {
        return false;
    }
    if (options.stream) {
        return parts_of_queue(functions, options.stream, parts, status) && check_context(functions, parts, status);
    }
    return options.context || choose(functions, options.index, parts, status);
}

// Makes what is missing; takes back what it made when it cannot make all.
polyhead_device *open(const Driver &functions, const polyhead_device_options &options, polyhead_status *status) {
    Parts parts;
    if (!find_parts(functions, options, &parts, status)) {
        return nullptr;
    }
    char name[sizeof(polyhead_device::name)];
    describe(functions, parts.device, name, sizeof name);
    const bool own_context = !parts.context, own_queue = !parts.queue;
    int error = 0;
    if (own_context) {
        parts.context = functions.create_context(nullptr, 1, &parts.device, nullptr, nullptr, &error);
    }
    if (own_queue && !error) {
        parts.queue = functions.create_queue(parts.context, parts.device, 0, &error);
    }
    Device *device = nullptr;
    if (!error && opened(parts.context)) {
        device = new (std::nothrow) Device(functions, parts.device, parts.context, parts.queue, own_context, own_queue);
    }
    if (!device) {
        error = error ? error : int(out_of_host_memory);
        *status = failed(name, "opening", error);
        if (own_queue && parts.queue) {
            functions.release_queue(parts.queue);
        }
        if (own_context && parts.context) {
            functions.release_context(parts.context);
        }
        return nullptr;
    }
    std::memcpy(device->name, name, sizeof name);
    return device;
}

} // namespace
} // namespace opencl

int32_t count_opencl_devices() noexcept {
    const opencl::Driver *functions = opencl::driver(nullptr);
    try {
        return functions ? static_cast<int32_t>(opencl::all_devices(*functions).size()) : 0;
    } catch (const std::bad_alloc &) {
        return 0;
    }
}

polyhead_device *open_opencl(const polyhead_device_options &options, polyhead_status *status) noexcept {
    const opencl::Driver *functions = opencl::driver(status);
    try {
        return functions ? opencl::open(*functions, options, status) : nullptr;
    } catch (const std::bad_alloc &) {
        refuse(status, POLYHEAD_OUT_OF_MEMORY, "opencl: no memory to list devices");
        return nullptr;
    }
}

} // namespace polyhead::runtime
