// The device that a test program runs its kernels on.
#ifndef POLYHEAD_TESTS_DEVICE_H
#define POLYHEAD_TESTS_DEVICE_H

#include <cstdint>
#include <string>
#include <vector>

#include <polyhead/polyhead.h>

namespace polyhead::test {

// The device that POLYHEAD_TEST_DEVICE names: cuda, opencl or vulkan, with an index after a colon if it is not the first.
// Opened at the first call and kept. When there is none, a test that needs it must fail with error().
class TestDevice {
public:
    static const TestDevice &get();
    const std::string &error() const { return error_; }
    polyhead_device *raw() const { return device_.raw(); }
    const Device &device() const { return device_; }
    Api api() const { return api_; }
    std::string name() const;

private:
    TestDevice();
    Api api_ = Api::cpu;
    Device device_;
    std::string error_;
};

// The variants of a kernel that this device can run (instruments/calls/subject.h).
std::vector<polyhead_kernel> forced_variants(const polyhead_kernel &kernel, const TestDevice &on);

// "opencl" and "opencl:2" to api and index; false for anything else.
bool parse_device(const std::string &text, Api *api, int *index);

// In the quick tier, where CTest runs a program on two emulated devices (POLYHEAD_TEST_TURNS), the numbers of a sweep whose turn this
// device has: every second one, by the commit. Elsewhere all of them.
std::vector<int> in_turn(std::vector<int> numbers);

} // namespace polyhead::test
#endif
