// The support of the GPU tests itself: names of devices, and mirrors that see what was written where.
#include <cstring>

#include "gpu_tests.h"

#include "instruments/calls/mirror.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// Writes four bytes on the device, `offset` bytes after the first element.
void poke(const TestDevice &device, const Mirror &mirror, int64_t offset) {
    const int64_t first = mirror.view().offset * dtype_bytes(mirror.view().dtype);
    const uint32_t word = 0x12345678;
    const polyhead_status status =
        polyhead_copy_to_device(device.raw(), &word, sizeof word, mirror.view().data, static_cast<size_t>(first + offset));
    INFO(status.message);
    REQUIRE(status.code == POLYHEAD_OK);
}

Tensor filled(Place place) {
    Tensor tensor = make_tensor(DType::f32, {2, 3, 5}, {20, 6, 1}, place);
    Random random(1);
    fill_normal(tensor, random, 1.0f);
    return tensor;
}

} // namespace

TEST_CASE("gpu support: names of devices") {
    Api api;
    int index;
    CHECK((parse_device("opencl", &api, &index) && api == Api::opencl && index == 0));
    CHECK((parse_device("cuda:12", &api, &index) && api == Api::cuda && index == 12));
    CHECK((parse_device("vulkan:1", &api, &index) && api == Api::vulkan && index == 1));
    for (const char *wrong : {"", "cpu", "opencl:", "opencl:x", "opencl:-1", ":1", "cuda:12345"}) {
        CHECK(!parse_device(wrong, &api, &index));
    }
}

TEST_CASE("gpu support: a mirror brings back what was written, and finds what was written around it") {
    const TestDevice &device = required_device();
    if (homes_of(device).size() == 1) {
        SUCCEED("memory of this device is not handed out");
        return;
    }
    const int64_t last = (20 + 2 * 6 + 4) * 4; // byte of the last element
    for (Place place : {Place::inside, Place::at_begin, Place::at_end}) {
        const Tensor tensor = filled(place);
        Mirror untouched(device.raw(), tensor.view);
        REQUIRE(untouched.status().code == POLYHEAD_OK);
        CHECK(untouched.view().device == device.raw());
        CHECK(untouched.find_change() == "");
        CHECK(untouched.read_back() == "");
        poke(device, untouched, last);
        CHECK(untouched.find_change() != "");
        CHECK(untouched.read_back() == "");
        uint32_t word;
        std::memcpy(&word, static_cast<char *>(tensor.view.data) + last, sizeof word);
        CHECK(word == 0x12345678);
        if (place != Place::at_begin) {
            Mirror before(device.raw(), tensor.view);
            poke(device, before, -4);
            CHECK(before.read_back() != "");
        }
        if (place != Place::at_end) {
            Mirror after(device.raw(), tensor.view);
            poke(device, after, last + 4);
            CHECK(after.read_back() != "");
        }
    }
}
