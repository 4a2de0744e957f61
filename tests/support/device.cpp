// Opens the device of a test run.
#include "device.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include <pthread.h>

#include "instruments/calls/subject.h"
#include "sweep.h"

namespace polyhead::test {

bool parse_device(const std::string &text, Api *api, int *index) {
    const size_t colon = text.find(':');
    const std::string name = text.substr(0, colon), number = colon == std::string::npos ? "0" : text.substr(colon + 1);
    *api = name == "cuda" ? Api::cuda : name == "opencl" ? Api::opencl : name == "vulkan" ? Api::vulkan : Api::cpu;
    const bool digits = !number.empty() && number.size() < 4 && number.find_first_not_of("0123456789") == std::string::npos;
    *index = digits ? std::atoi(number.c_str()) : 0;
    return *api != Api::cpu && digits;
}

const TestDevice &TestDevice::get() {
    static const TestDevice *const device = new TestDevice; // never closed: its driver may be unloaded before static objects are destroyed
    return *device;
}

namespace {

// PoCL keeps the private memory of a whole block on the stack of its thread: 900 threads of a random tiling take 16 MB.
void give_new_threads_large_stacks() {
    constexpr size_t bytes = size_t(64) << 20;
    pthread_attr_t attributes;
    if (pthread_getattr_default_np(&attributes) == 0) {
        pthread_attr_setstacksize(&attributes, bytes);
        pthread_setattr_default_np(&attributes);
        pthread_attr_destroy(&attributes);
    }
}

} // namespace

TestDevice::TestDevice() {
    const char *text = std::getenv("POLYHEAD_TEST_DEVICE");
    int index = 0;
    if (text == nullptr || !parse_device(text, &api_, &index)) {
        error_ = std::string("POLYHEAD_TEST_DEVICE is ") + (text == nullptr ? "not set" : text) +
                 ", expected cuda, opencl or vulkan, with :INDEX if it is not the first device";
        return;
    }
    if (api_ == Api::opencl) {
        give_new_threads_large_stacks();
    }
    const Status status = Device::open(api_, index, &device_);
    if (!status.ok()) {
        error_ = std::string("POLYHEAD_TEST_DEVICE=") + text + ": " + status.message();
    }
}

std::vector<polyhead_kernel> forced_variants(const polyhead_kernel &kernel, const TestDevice &on) {
    return forced_variants(kernel, on.api(), &on.device());
}

std::string TestDevice::name() const {
    char text[200];
    polyhead_device_name(raw(), text, sizeof text);
    return text;
}

std::vector<int> in_turn(std::vector<int> numbers) {
    if (std::getenv("POLYHEAD_TEST_TURNS") == nullptr || sweep_step() != 0) {
        return numbers;
    }
    const uint64_t turn = text_seed(sweep_seed_text()) + (TestDevice::get().api() == Api::opencl ? 0 : 1);
    numbers.erase(
        std::remove_if(numbers.begin(), numbers.end(), [&](int number) { return (static_cast<uint64_t>(number) + turn) % 2 != 0; }),
        numbers.end());
    return numbers;
}

} // namespace polyhead::test
