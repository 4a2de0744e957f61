// Devices where there are none: a sentence, and the CPU kernel still runs. Where a driver is installed, its own tests say the rest.
#include <string>

#include "runtime_sum.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

TEST_CASE("no driver: opening is refused and the CPU works on", "[runtime]") {
    for (const Api api : {Api::cuda, Api::opencl}) {
        if (Device::count(api) > 0) {
            continue;
        }
        Device device;
        const Status status = Device::open(api, 0, &device);
        INFO(status.message());
        CHECK(status.code() == POLYHEAD_NO_DEVICE);
        CHECK(!device);
    }
    SumCall call;
    REQUIRE(sum_kernel().run(call.args).ok());
    CHECK(call.out == call.expected());
}

TEST_CASE("no driver: interfaces that this library does not speak", "[runtime]") {
    Device device;
    for (const Api api : {Api::cpu, Api::metal, Api::webgpu, static_cast<Api>(99)}) {
        CHECK(Device::count(api) == 0);
        const Status status = Device::open(api, 0, &device);
        CHECK(status.code() == POLYHEAD_NO_DEVICE);
        CHECK(std::string(status.message()).find("expected cuda, opencl or vulkan") != std::string::npos);
    }
    // Refused before any driver is looked for.
    CHECK(std::string(Device::open(Api::vulkan, 1, &device).message()) ==
          "vulkan: device 1, expected 0, the one that Halide's runtime chooses");
    CHECK(std::string(Device::open(Api::vulkan, 0, &device, &device).message()).find("vulkan: a context or queue was given") == 0);
    CHECK(polyhead_open_device(nullptr, nullptr).code == POLYHEAD_NULL_POINTER);
    polyhead_device_options options{POLYHEAD_CUDA, 0, nullptr, nullptr};
    CHECK(polyhead_open_device(&options, nullptr).code == POLYHEAD_NULL_POINTER);
}
