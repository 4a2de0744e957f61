// What scratch_bytes() says of a call on a device, held against the memory that the kernel asks for there between its stages.
#include <HalideRuntime.h>

#include "gpu_tests.h"
#include "support/problems.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// Bytes that kernels asked for since the last start. The linker leads every call of halide_device_malloc in a kernel here.
int64_t requested = 0;

} // namespace

extern "C" {
int __real_halide_device_malloc(void *context, halide_buffer_t *buffer, const halide_device_interface_t *interface);

int __wrap_halide_device_malloc(void *context, halide_buffer_t *buffer, const halide_device_interface_t *interface) {
    requested += buffer->device == 0 ? static_cast<int64_t>(buffer->size_in_bytes()) : 0; // asked for again before each launch
    return __real_halide_device_malloc(context, buffer, interface);
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
    const polyhead_args args = subject.prepared(inputs.args());
    polyhead_status status{};
    const int64_t said = polyhead_scratch_bytes(&kernel, &args, &status);
    INFO(kernel.name << " " << kernel.variants[0].tiling << "\n" << describe(call_problem(kernel), shape) << ": " << status.message);
    REQUIRE(status.code == POLYHEAD_OK);
    DeviceCall call(device.raw(), Home::device, args); // tensors that lie on the device are not asked for again
    REQUIRE(call.status().code == POLYHEAD_OK);
    requested = 0;
    REQUIRE(polyhead_run(&kernel, &call.args()).code == POLYHEAD_OK);
    REQUIRE(polyhead_synchronize(device.raw()).code == POLYHEAD_OK);
    CHECK(said >= requested);
    CHECK(said <= 2 * requested);
}

} // namespace

TEST_CASE("gpu scratch: what a call asks for on the device is what it says, every variant of bare attention") {
    const TestDevice &device = required_device();
    int splits = 0;
    for (const Kernel *kernel : kernels_for(device)) {
        if (!is_sdpa(kernel->problem) || device.api() == Api::vulkan) {
            continue;
        }
        for (const polyhead_kernel &forced : forced_variants(*kernel, device.api())) {
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
    CHECK((splits > 0 || device.api() == Api::vulkan));
}
