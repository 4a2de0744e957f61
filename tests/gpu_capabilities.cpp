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
const char *const target = "host-cuda-cuda_capability_90a";

// What explain() says of a call on the device that the driver is now; the answer of the kernel is checked, if it runs there. lacking: how
// many variants tests leave out because the device lacks what they need.
std::string explained(const Kernel &kernel, const Problem &problem, size_t *lacking, int64_t batch = 1) {
    Device device;
    REQUIRE(Device::open(Api::cuda, 0, &device).ok());
    *lacking = forced_variants(kernel, Api::cuda).size() - forced_variants(kernel, Api::cuda, &device).size();
    const Shape shape = plain_shape(problem, batch, 17, 33, 7);
    if (kernel.supported(&device)) {
        const KernelSubject subject(kernel, 7, false, device.raw());
        double worst = 0;
        CHECK(check_answer(subject.subject(), shape, &worst, 1e7) == "");
    }
    Inputs inputs(problem, shape);
    polyhead_args args = inputs.args();
    args.device = device.raw();
    return kernel.explain(args);
}

// Whether the line of the variant that runs has these words.
bool runs(const std::string &text, const std::string &words) {
    const size_t line = text.find("runs ");
    return line != std::string::npos && text.substr(line, text.find('\n', line) - line).find(words) != std::string::npos;
}

bool says(const std::string &text, const std::string &words) {
    return text.find(words) != std::string::npos;
}

} // namespace

TEST_CASE("gpu capabilities: of one target wgmma on 9.0, mma.sync from 8.0 on") {
    Problem problem = sdpa_problem(2, 64);
    problem.dtype = POLYHEAD_F16;
    problem.seq_len_q = 17; // no variant for few queries
    const CompiledKernel all(problem, {target, "", "of_all"});
    REQUIRE(all.error() == "");
    size_t lacking = 0;
    for (const int capability : capabilities) {
        const Restarted restarted("POLYHEAD_CUDA_DRIVER_CAPABILITY", std::to_string(capability).c_str());
        const std::string text = explained(all.kernel(), problem, &lacking);
        INFO(capability << "\n" << text);
        CHECK(lacking == (capability == 90 ? 0 : 2));
        CHECK(runs(text, capability == 90 ? "frame=group_tiles" : "frame=warp_tiles"));
        CHECK(runs(text, capability == 90 ? "row_groups=4" : "thread_rows=1"));
        CHECK(says(text, "needs compute capability 9.0 and no other\n") == (capability != 90));
    }
    const Restarted of_90("POLYHEAD_CUDA_DRIVER_CAPABILITY", "90");
    const std::string many = explained(all.kernel(), problem, &lacking, 2); // as many blocks as multiprocessors
    INFO(many);
    CHECK((runs(many, "frame=group_tiles") && runs(many, "row_groups=8")));
    CHECK(says(many, "is for fewer than 4 blocks of 64 queries, as many as the device has multiprocessors, found 4\n"));
    const Restarted little("POLYHEAD_CUDA_DRIVER_SHARED", "60000");
    const std::string text = explained(all.kernel(), problem, &lacking);
    INFO(text);
    CHECK(lacking == 2);
    CHECK(runs(text, "frame=warp_tiles"));
    CHECK(says(text, "needs 114704 bytes of shared memory, of which a block has 60000\n"));
    const Kernel table(all.kernel());
    const Kernel *set[] = {&table};
    const std::string needed = explain(set, 1, problem);
    INFO(needed);
    CHECK(says(needed, "needs a device, cuda 9.0 and no other with "));
    CHECK(says(needed, "needs a device, cuda 8.0 or newer with "));
}

TEST_CASE("gpu capabilities: code for one capability runs on no other") {
    Problem problem = sdpa_problem(2, 16);
    problem.dtype = POLYHEAD_F16;
    const CompiledKernel only(problem, {target, "frame=group_tiles kv_tile=16 row_groups=4", "only_90"});
    REQUIRE(only.error() == "");
    size_t lacking = 0;
    for (const int capability : capabilities) {
        const Restarted restarted("POLYHEAD_CUDA_DRIVER_CAPABILITY", std::to_string(capability).c_str());
        const std::string text = explained(only.kernel(), problem, &lacking);
        INFO(capability << "\n" << text);
        CHECK(runs(text, "frame=group_tiles") == (capability == 90));
        CHECK(says(text, "needs compute capability 9.0 and no other\n") == (capability != 90));
    }
}
