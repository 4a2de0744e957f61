// Counts and opens devices of any interface.
#include <atomic>

#include "../call/call_guard.h"
#include "../status.h"
#include "../threads/process.h"
#include "apis.h"
#include "cuda_modules.h"
#include "opencl_programs.h"

namespace {

using namespace polyhead::runtime;

struct Api {
    int32_t api;
    int32_t (*count)() noexcept;
    polyhead_device *(*open)(const polyhead_device_options &, polyhead_status *) noexcept;
};

constexpr Api apis[] = {
    {POLYHEAD_CUDA, count_cuda_devices, open_cuda},
    {POLYHEAD_OPENCL, count_opencl_devices, open_opencl},
    {POLYHEAD_VULKAN, count_vulkan_devices, open_vulkan},
};

// The process that first used devices. Its drivers are started from then on; they do not work in a child of fork.
std::atomic<int> asked_in{-1};

bool drivers_of_parent() noexcept {
    int none = -1;
    const int here = fork_generation();
    return !asked_in.compare_exchange_strong(none, here) && none != here;
}

const Api *find(int32_t api) noexcept {
    for (const Api &entry : apis) {
        if (entry.api == api) {
            return &entry;
        }
    }
    return nullptr;
}

} // namespace

void polyhead::runtime::unload_device_code(const void *begin, const void *end) noexcept {
    if (asked_in.load() != fork_generation()) {
        return; // no driver of this process was started, so none has code
    }
    cuda::left(begin, end);
    opencl::left(begin, end);
}

int32_t polyhead_device_count(int32_t api) {
    const CallGuard guard;
    const Api *entry = find(api);
    return entry && !drivers_of_parent() ? entry->count() : 0;
}

polyhead_status polyhead_open_device(const polyhead_device_options *options, polyhead_device **device) {
    const CallGuard guard;
    if (!options) {
        return failure(POLYHEAD_NULL_POINTER, "options: null pointer, expected an api and an index");
    }
    if (!device) {
        return failure(POLYHEAD_NULL_POINTER, "device: null pointer, expected where to put the handle");
    }
    *device = nullptr;
    const Api *entry = find(options->api);
    if (!entry) {
        return failure(POLYHEAD_NO_DEVICE, "api: %s (%d), expected cuda, opencl or vulkan, which this library can open",
                       api_name(options->api), options->api);
    }
    polyhead_status status = success();
    if (drivers_of_parent()) {
        refuse(&status, POLYHEAD_NO_DEVICE,
               "api: %s was in use before fork, expected a process that was started anew; drivers do not survive a fork",
               api_name(options->api));
        return status;
    }
    *device = entry->open(*options, &status);
    return status;
}
