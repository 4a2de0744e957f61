// Which variant of a kernel runs on a device of which capability, and that its code is right there: compiled by the test, on the driver
// that executes PTX, which can be any of them.
#include "instruments/calls/compiled_kernel.h"

#include "cuda_functions.h"
#include "instruments/calls/problems.h"
#include "support/check.h"
#include "support/shapes.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

constexpr int capabilities[] = {80, 86, 90, 100, 120};

// The variant that runs on a device of this capability, if any, by its name; the answer of the kernel there is checked.
std::string variant_on(const Kernel &kernel, const Problem &problem, int capability) {
    const Restarted restarted("POLYHEAD_CUDA_DRIVER_CAPABILITY", std::to_string(capability).c_str());
    Device device;
    REQUIRE(Device::open(Api::cuda, 0, &device).ok());
    if (!kernel.supported(&device)) {
        return "";
    }
    const KernelSubject subject(kernel, 7, false, device.raw());
    double worst = 0;
    CHECK(check_answer(subject.subject(), plain_shape(problem, 1, 17, 33, 7), &worst, 1e7) == "");
    for (const polyhead_kernel &forced : forced_variants(kernel, Api::cuda)) {
        if (Kernel(forced).supported(&device)) {
            return forced.variants[0].name;
        }
    }
    return "";
}

} // namespace

TEST_CASE("gpu capabilities: code for one capability runs on no other") {
    Problem problem = sdpa_problem(2, 16);
    problem.dtype = POLYHEAD_F16;
    const CompiledKernel only(problem, {"host-cuda-cuda_capability_90a", "frame=thread_rows", "only_90"});
    REQUIRE(only.error() == "");
    for (const int capability : capabilities) {
        INFO(capability);
        CHECK(variant_on(only.kernel(), problem, capability).empty() == (capability != 90));
    }
}
