// Vulkan: the one device that Halide's runtime chooses. Halide 21 cannot use memory of the caller there, so tensors are on the host.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "../status.h"
#include "apis.h"
#include "halide_device.h"
#include "halide_devices.h"

namespace polyhead::runtime {
namespace {

class VulkanDevice final : public HalideDevice {
public:
    VulkanDevice(int major, int minor) noexcept {
        api = POLYHEAD_VULKAN;
        most_blocks = 65535; // what every device has
        std::snprintf(name, sizeof name, "vulkan %d.%d", major, minor);
    }
    ~VulkanDevice() override { synchronize(); }

    polyhead_status synchronize() noexcept override {
        CallContext call(this);
        const auto *interface = halide_vulkan_device_interface();
        if (halide_device_sync_global(&call, interface) == 0) {
            return success();
        }
        return failure(POLYHEAD_INTERNAL, "device %s: waiting for it: %.180s", name, call.text);
    }
    polyhead_status allocate(size_t, void **) noexcept override { return host_only("memory"); }
    void free(void *) noexcept override {}
    polyhead_status copy_to_device(const void *, size_t, void *, size_t) noexcept override { return host_only("data"); }
    polyhead_status copy_to_host(const void *, size_t, size_t, void *) noexcept override { return host_only("data"); }
    bool check(const DeviceRange &range, polyhead_status *status) const noexcept override {
        *status = host_only(range.name);
        return false;
    }
    bool attach(const DeviceRange &range, KernelBuffer *, Attachment *, polyhead_status *status) noexcept override {
        return check(range, status);
    }
    bool attach_element(uint32_t, KernelBuffer *, Attachment *) noexcept override { return false; } // copied like any host tensor
    void detach(KernelBuffer *, Attachment *, bool) noexcept override {}

private:
    static polyhead_status host_only(const char *what) noexcept {
        return failure(POLYHEAD_WRONG_DEVICE, "%s: on a Vulkan device, expected host memory: tensors of Vulkan calls live on the host",
                       what);
    }
};

halide_print_t other_print;

// Halide prints a line when it is configured; it is left out.
void print(void *user_context, const char *text) {
    if (!std::strstr(text, "Vulkan: Configuring allocator")) {
        other_print(user_context, text);
    }
}

// Halide 21 lets tensors begin at multiples of 32 bytes, whatever the device requires; answers were wrong where it requires 64. 256 is the
// most that a device may require. The other numbers: no limits, blocks of 1 MiB and more.
void configure_memory() noexcept {
    static std::once_flag once;
    std::call_once(once, [] {
        if (!std::getenv("HL_VK_ALLOC_CONFIG")) {
            other_print = halide_set_custom_print(print);
            halide_vulkan_set_alloc_config("0:1:0:0:256");
        }
    });
}

// The version of the device that Halide would choose; 0 without a driver.
void version(int *major, int *minor) noexcept {
    CallContext call(static_cast<polyhead_device *>(nullptr));
    *major = *minor = 0;
    if (halide_vulkan_device_interface()->compute_capability(&call, major, minor) != 0) {
        *major = *minor = 0;
    }
}

} // namespace

int32_t count_vulkan_devices() noexcept {
    int major = 0, minor = 0;
    version(&major, &minor);
    return major > 0 ? 1 : 0;
}

polyhead_device *open_vulkan(const polyhead_device_options &options, polyhead_status *status) noexcept {
    if (options.context || options.stream) {
        refuse(status, POLYHEAD_NO_DEVICE, "vulkan: a context or queue was given, expected none: Halide's runtime makes its own");
        return nullptr;
    }
    if (options.index != 0) {
        refuse(status, POLYHEAD_NO_DEVICE, "vulkan: device %d, expected 0, the one that Halide's runtime chooses", options.index);
        return nullptr;
    }
    int major = 0, minor = 0;
    version(&major, &minor);
    if (major == 0) {
        refuse(status, POLYHEAD_NO_DEVICE, "vulkan: no driver or no device was found");
        return nullptr;
    }
    configure_memory();
    auto *device = new (std::nothrow) VulkanDevice(major, minor);
    if (!device) {
        refuse(status, POLYHEAD_OUT_OF_MEMORY, "vulkan: no memory for a device handle");
        return nullptr;
    }
    *status = device->synchronize(); // makes the context, so that errors are reported now
    if (status->code != POLYHEAD_OK) {
        status->code = POLYHEAD_NO_DEVICE;
        delete device;
        return nullptr;
    }
    return device;
}

} // namespace polyhead::runtime
