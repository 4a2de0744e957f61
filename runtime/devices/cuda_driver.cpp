// Loads NVIDIA's driver at its first use.
#include "cuda_driver.h"

#include <atomic>
#include <dlfcn.h>
#include <mutex>

#include "../status.h"
#include "halide_devices.h"

namespace polyhead::runtime::cuda {
namespace {

std::mutex loading;
Driver loaded{};
std::atomic<bool> ready{false};

bool load_functions(Driver *driver, polyhead_status *status) noexcept {
    driver->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver->library) {
        return refuse(status, POLYHEAD_NO_DEVICE, "cuda: no driver, libcuda.so.1 was not found");
    }
#define POLYHEAD_CUDA_LOAD(member, name, arguments)                                                                                        \
    driver->member = reinterpret_cast<int(*) arguments>(dlsym(driver->library, name));                                                     \
    if (!driver->member) {                                                                                                                 \
        return refuse(status, POLYHEAD_NO_DEVICE, "cuda: the driver has no function %s, expected one of CUDA 11 or newer", name);          \
    }
    POLYHEAD_CUDA_FUNCTIONS(POLYHEAD_CUDA_LOAD)
#undef POLYHEAD_CUDA_LOAD
#define POLYHEAD_CUDA_LOOK_FOR(member, name, arguments) driver->member = reinterpret_cast<int(*) arguments>(dlsym(driver->library, name));
    POLYHEAD_CUDA_NEWER_FUNCTIONS(POLYHEAD_CUDA_LOOK_FOR)
#undef POLYHEAD_CUDA_LOOK_FOR
    return true;
}

} // namespace

const char *error_name(const Driver &driver, int error) noexcept {
    const char *name = nullptr;
    return driver.error_name(error, &name) == 0 && name ? name : "an unknown error";
}

const Driver *driver(polyhead_status *status) noexcept {
    if (ready.load(std::memory_order_acquire)) {
        return &loaded;
    }
    polyhead_status ignored;
    status = status ? status : &ignored;
    const std::lock_guard<std::mutex> lock(loading);
    if (ready) {
        return &loaded;
    }
    if (!loaded.library && !load_functions(&loaded, status)) {
        loaded = Driver{};
        return nullptr;
    }
    if (const int error = loaded.init(0)) {
        refuse(status, POLYHEAD_NO_DEVICE, "cuda: the driver could not be started: %s", error_name(loaded, error));
        return nullptr;
    }
    ready.store(true, std::memory_order_release);
    return &loaded;
}

} // namespace polyhead::runtime::cuda

// Halide would look for libcuda.so, which only a CUDA toolkit installs.
extern "C" void *halide_cuda_get_symbol(void *, const char *name) {
    using namespace polyhead::runtime::cuda;
    const Driver *driver = polyhead::runtime::cuda::driver(nullptr);
    return driver ? dlsym(driver->library, name) : nullptr;
}
