// What the tests of GPU kernels share: the kernels and variants for the device of this run, and how much work it can do.
#ifndef POLYHEAD_TESTS_GPU_TESTS_H
#define POLYHEAD_TESTS_GPU_TESTS_H

#include <cmath>
#include <string>
#include <vector>

#include "contract/apis.h"
#include "kernel_table.h"

#include "instruments/calls/not_run.h"
#include "instruments/calls/problems.h"
#include "support/catch.h"
#include "support/check.h"
#include "support/device.h"
#include "support/environment.h"
#include "support/required_device.h"
#include "support/shapes.h"

namespace polyhead::test {

inline bool emulated() {
    return std::isfinite(test_budget());
}

// Whether this device is fast enough for one call. Only a fixed length makes a kernel too slow; the kernel with free lengths is not.
inline bool affordable(const Problem &problem) {
    return multiply_adds(problem, plain_shape(problem, 1, 1, 1, 1)) <= 4 * test_budget();
}

// Whether the kernel was generated for another API alone: the fast tier's kernels end in the API that they are for, the others in _gpu.
inline bool for_another_api(const Kernel &kernel, Api api) {
    const std::string name = kernel.name, ending = name.substr(name.rfind('_') + 1);
    return ending != "gpu" && ending != contract::api_name(static_cast<int32_t>(api));
}

// Kernels of the table that this device can run, and run fast enough.
inline std::vector<const Kernel *> kernels_for(const TestDevice &device) {
    std::vector<const Kernel *> kernels;
    for (const Kernel *kernel : kernel_table) {
        INFO(kernel->name);
        if (for_another_api(*kernel, device.api())) {
            continue;
        }
        CHECK(!forced_variants(*kernel, device).empty());
        if (affordable(kernel->problem)) {
            kernels.push_back(kernel);
        } else {
            note_not_run(std::string("kernel ") + kernel->name, "its fixed lengths are too much for an emulated device");
        }
    }
    CHECK(!kernels.empty());
    return kernels;
}

// Fails where nothing was checked, unless the sample of this commit has no such kernel, which is said.
inline void check_some(int checked, const char *what, const TestDevice &device) {
    if (checked == 0 && !test_all() && device.api() != Api::vulkan) {
        note_not_run(what, "no kernel of this commit's sample for " + std::string(device.name()) + " has it");
        return;
    }
    CHECK((checked > 0 || device.api() == Api::vulkan));
}

// Devices without memory of their own to hand out take tensors from the host only.
inline std::vector<Home> homes_of(const TestDevice &device) {
    return device.api() == Api::vulkan ? std::vector<Home>{Home::host} : std::vector<Home>{Home::host, Home::device, Home::mixed};
}

} // namespace polyhead::test
#endif
