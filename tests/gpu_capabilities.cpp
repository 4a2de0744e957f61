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

// One table of the variants of several kernels.
struct OneTable {
    std::vector<polyhead_variant> variants;
    polyhead_kernel table;

    explicit OneTable(const std::vector<const CompiledKernel *> &kernels) : table(kernels[0]->kernel()) {
        for (const CompiledKernel *compiled : kernels) {
            REQUIRE(compiled->error() == "");
            const polyhead_kernel &kernel = compiled->kernel();
            variants.insert(variants.end(), kernel.variants, kernel.variants + kernel.num_variants);
        }
        table.variants = variants.data();
        table.num_variants = static_cast<int32_t>(variants.size());
    }
};

} // namespace

TEST_CASE("gpu capabilities: wgmma on 9.0, mma.sync from 8.0 on, of one target") {
    Problem problem = sdpa_problem(2, 64);
    problem.dtype = POLYHEAD_F16;
    const char *const target = "host-cuda-cuda_capability_80";
    const CompiledKernel groups(problem, {target, "frame=group_tiles kv_tile=64 row_groups=4", "by_groups"}),
        warps(problem, {target, "frame=warp_tiles", "by_warps"}), rows(problem, {target, "frame=thread_rows load_width=1", "by_rows"});
    const OneTable all({&groups, &warps, &rows});
    for (const int capability : capabilities) {
        INFO(capability);
        const std::string variant = variant_on(Kernel(all.table), problem, capability);
        CHECK(variant.find(capability == 90 ? "by_groups" : "by_warps") != std::string::npos);
    }
    const Kernel table(all.table);
    const Kernel *set[] = {&table};
    const std::string text = explain(set, 1, problem);
    INFO(text);
    CHECK(text.find("needs a device, cuda 9.0 and no other with ") != std::string::npos);
    CHECK(text.find("needs a device, cuda 8.0 or newer with ") != std::string::npos);
}

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
