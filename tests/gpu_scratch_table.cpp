// What scratch_bytes() says of a call on a device, held against the memory that the kernel asks for there between its stages.
#include <algorithm>

#include "../runtime/devices/halide_devices.h"

#include "gpu_tests.h"
#include "instruments/calls/problems.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// Bytes that kernels have on the device and had at most since the last start. The linker leads the calls of kernels here.
int64_t held = 0, most_held = 0;

int64_t bytes_of(const halide_buffer_t *buffer) {
    return static_cast<int64_t>(buffer->size_in_bytes());
}

} // namespace

extern "C" {
int __real_polyhead_halide_device_malloc(void *context, halide_buffer_t *buffer, const halide_device_interface_t *interface);
int __real_polyhead_halide_device_free(void *context, halide_buffer_t *buffer);

int __wrap_polyhead_halide_device_malloc(void *context, halide_buffer_t *buffer, const halide_device_interface_t *interface) {
    held += buffer->device == 0 ? bytes_of(buffer) : 0; // asked for again before each launch
    most_held = std::max(most_held, held);
    return __real_polyhead_halide_device_malloc(context, buffer, interface);
}

int __wrap_polyhead_halide_device_free(void *context, halide_buffer_t *buffer) {
    held -= buffer->device != 0 ? bytes_of(buffer) : 0;
    return __real_polyhead_halide_device_free(context, buffer);
}
}

namespace {

// One split, and several of which the last one is not whole.
struct Lengths {
    int64_t batch, seq_len_q, seq_len_kv;
};
constexpr Lengths all_lengths[] = {{1, 1, 1}, {2, 3, 300}};

void check_call(const polyhead_kernel &kernel, const KernelSubject &subject, const TestDevice &device, const Shape &shape) {
    const Inputs inputs(call_problem(kernel), shape);
    DeviceCall call(device.raw(), Home::device, subject.prepared(inputs.args())); // tensors that are on the device are not asked for again
    REQUIRE(call.status().code == POLYHEAD_OK);
    polyhead_status status{};
    const int64_t said = polyhead_scratch_bytes(&kernel, &call.args(), &status);
    INFO(kernel.name << " " << kernel.variants[0].tiling << "\n" << describe(call_problem(kernel), shape) << ": " << status.message);
    REQUIRE(status.code == POLYHEAD_OK);
    held = most_held = 0;
    REQUIRE(polyhead_run(&kernel, &call.args()).code == POLYHEAD_OK);
    REQUIRE(polyhead_synchronize(device.raw()).code == POLYHEAD_OK);
    CHECK(said >= most_held);
    CHECK(said <= 2 * most_held);
}

} // namespace

TEST_CASE("gpu scratch: what a call asks for on the device is what it says, every variant of bare attention") {
    const TestDevice &device = required_device();
    int splits = 0;
    for (const Kernel *kernel : kernels_for(device)) {
        if (!is_sdpa(kernel->problem) || device.api() == Api::vulkan) {
            continue;
        }
        for (const polyhead_kernel &forced : forced_variants(*kernel, device)) {
            const KernelSubject subject(forced, 7, false, device.raw(), Home::device);
            for (const Lengths &lengths : all_lengths) {
                const Shape shape = plain_shape(call_problem(forced), lengths.batch, lengths.seq_len_q, lengths.seq_len_kv, 5);
                if (serves(forced, shape.seq_len_q)) {
                    check_call(forced, subject, device, shape);
                    splits += forced.variants[0].scratch.terms[0].key_block > 0;
                }
            }
        }
    }
    check_some(splits, "splits of keys", device);
}

TEST_CASE("gpu scratch: keys behind the longest valid one take no memory where the lengths are on the host") {
    const TestDevice &device = required_device();
    int checked = 0;
    for (const Kernel *kernel : kernels_for(device)) {
        const Problem &p = kernel->problem;
        const bool free_keys = p.kv_lengths != 0 && p.seq_len_kv == 0 && !(p.expression && p.expression[0]);
        for (const polyhead_kernel &forced : forced_variants(*kernel, device)) {
            if (!free_keys || forced.variants[0].max_seq_len_q == 0 || forced.variants[0].scratch.terms[0].key_block == 0) {
                continue;
            }
            const int64_t large = 700, small = 260;
            if (plain_shape(call_problem(forced), 1, 1, large, 5).seq_len_kv < large) {
                continue; // too much for an emulated device
            }
            const KernelSubject subject(forced, 7, false, device.raw(), Home::host);
            std::vector<int64_t> said;
            for (const int64_t capacity : {small, large}) {
                Shape shape = plain_shape(call_problem(forced), 1, 1, capacity, 5);
                shape.lengths = {257};
                shape.poison = true;
                const Inputs inputs(call_problem(forced), shape);
                const polyhead_args args = subject.prepared(inputs.args());
                said.push_back(polyhead_scratch_bytes(&forced, &args, nullptr));
                CHECK(check_answer(subject.subject(), shape) == "");
            }
            INFO(forced.name << " " << forced.variants[0].tiling);
            CHECK(said[0] == said[1]);
            checked++;
        }
    }
    check_some(checked, "memory of keys behind the longest valid one", device);
}
