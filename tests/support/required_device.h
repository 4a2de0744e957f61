// For tests that need the device of this run.
#ifndef POLYHEAD_TESTS_REQUIRED_DEVICE_H
#define POLYHEAD_TESTS_REQUIRED_DEVICE_H

#include "catch.h"
#include "device.h"

namespace polyhead::test {

// Ends the test case when the device cannot be opened: these tests never pass without one.
inline const TestDevice &required_device() {
    const TestDevice &device = TestDevice::get();
    INFO(device.error());
    REQUIRE(device.raw() != nullptr);
    return device;
}

// The same, of CUDA; null on another device, where the test case has nothing to find.
inline const TestDevice *required_cuda() {
    const TestDevice &device = required_device();
    if (device.api() == Api::cuda) {
        return &device;
    }
    SUCCEED("no warp multiplies there");
    return nullptr;
}

} // namespace polyhead::test
#endif
