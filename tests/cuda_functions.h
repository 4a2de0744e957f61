// The functions of the CUDA driver of the tests, for programs that do not link it: it is looked for when it is first asked for.
#ifndef POLYHEAD_TESTS_CUDA_FUNCTIONS_H
#define POLYHEAD_TESTS_CUDA_FUNCTIONS_H

#include <cstdlib>

#include <dlfcn.h>

#include "instruments/emulators/ptx/cuda_driver.h"
#include "support/catch.h"

namespace polyhead::test {

template <typename F> F *cuda_function(F *, const char *name) {
    static void *const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library != nullptr);
    F *function = reinterpret_cast<F *>(dlsym(library, name));
    INFO(name);
    REQUIRE(function != nullptr); // another driver than the one of these tests
    return function;
}
#define CU(name) ::polyhead::test::cuda_function(static_cast<decltype(name) *>(nullptr), #name)

// The driver as if the program had just begun, with other devices. Nothing may be open.
struct Restarted {
    explicit Restarted(const char *variable = nullptr, const char *value = nullptr) : variable_(variable) {
        if (variable) {
            setenv(variable, value, 1);
        }
        CU(polyhead_cuda_driver_restart)();
        CU(cuInit)(0);
    }
    ~Restarted() {
        if (variable_) {
            unsetenv(variable_);
        }
        CU(polyhead_cuda_driver_restart)();
        CU(cuInit)(0);
    }
    const char *variable_;
};

// Calls of the driver since this object was made.
class DriverCalls {
public:
    DriverCalls() : all_(all()), launches_(launches()) {}
    uint64_t of_launches() const { return launches() - launches_; }
    uint64_t of_others() const { return all() - all_ - of_launches(); }

private:
    static uint64_t all() { return CU(polyhead_cuda_driver_calls)(""); }
    static uint64_t launches() { return CU(polyhead_cuda_driver_calls)("cuLaunchKernel"); }
    uint64_t all_, launches_;
};

} // namespace polyhead::test
#endif
