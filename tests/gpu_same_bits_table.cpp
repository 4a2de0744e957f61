// Every GPU variant of the table gives the same bits when repeated, alone and among other batch rows, with and without padding, and
// wherever its tensors are. And every GPU kernel refuses wrong arguments and leaves its outputs untouched.
#include "gpu_tests.h"
#include "instruments/calls/problems.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

Shape shape_for(const polyhead_kernel &forced, uint64_t seed) {
    Shape shape = same_bits_shape(call_problem(forced), seed);
    if (!serves(forced, shape.seq_len_q) && forced.problem.seq_len_q == 0) {
        shape.seq_len_q = 1 + static_cast<int64_t>(seed) % 4; // a variant for few queries
    }
    return shape;
}

} // namespace

TEST_CASE("gpu same bits: every variant, whatever neighbours and padding") {
    const TestDevice &device = required_device();
    for (const Kernel *kernel : kernels_for(device)) {
        for (const polyhead_kernel &forced : forced_variants(*kernel, device)) {
            const KernelSubject subject(forced, 31, false, device.raw(), Home::host);
            for (uint64_t seed = 1; seed <= (test_all() && !emulated() ? 4u : 1u); seed++) {
                const Shape shape = shape_for(forced, seed);
                if (serves(forced, shape.seq_len_q)) {
                    CHECK(check_same_bits(subject.subject(), shape) == "");
                }
            }
        }
    }
}

TEST_CASE("gpu same bits: whether tensors live on the host or on the device") {
    const TestDevice &device = required_device();
    for (const Kernel *kernel : kernels_for(device)) {
        for (const polyhead_kernel &forced : forced_variants(*kernel, device)) {
            const Shape shape = shape_for(forced, 2);
            if (!serves(forced, shape.seq_len_q)) {
                continue;
            }
            std::vector<std::vector<float>> first;
            for (Home home : homes_of(device)) {
                const KernelSubject subject(forced, 33, false, device.raw(), home);
                Inputs inputs(call_problem(forced), shape);
                const polyhead_status status = subject.subject().run(inputs.args());
                INFO(status.message << reproduce(subject.subject(), shape));
                CHECK(status.code == POLYHEAD_OK);
                const std::vector<CallTensor> outputs = outputs_of(forced.problem.op);
                for (size_t i = 0; i < outputs.size(); i++) {
                    if (home == Home::host) {
                        first.push_back(inputs.read(outputs[i].tensor));
                    }
                    INFO(outputs[i].name);
                    CHECK(same_bits(inputs.read(outputs[i].tensor), first[i]));
                }
            }
        }
    }
}

TEST_CASE("gpu same bits: packed tokens give each sequence the bits that it has alone") {
    const TestDevice &device = required_device();
    const size_t step = test_all() ? 3 : emulated() ? 16 : 6; // the parts are ordinary calls
    size_t number = 0;
    for (const Kernel *kernel : kernels_for(device)) {
        if (takes_packed_tokens(call_problem(*kernel)) && number++ % step == 0) {
            const KernelSubject subject(*kernel, 35, false, device.raw(), number % 2 == 0 ? Home::host : homes_of(device).back());
            CHECK(check_ragged(subject.subject(), number, emulated() ? 5 : 33) == "");
        }
    }
}

TEST_CASE("gpu refusals: every kernel leaves its outputs untouched") {
    const TestDevice &device = required_device();
    for (const Kernel *kernel : kernels_for(device)) {
        const KernelSubject subject(*kernel, 41, false, device.raw(), Home::host);
        CHECK(check_refusals(subject.subject(), plain_shape(kernel->problem, 2, 9, 12, 42)) == "");
    }
}

TEST_CASE("gpu refusals: wrong shapes of tensors on the device leave the outputs untouched") {
    const TestDevice &device = required_device();
    for (const Kernel *kernel : kernels_for(device)) {
        for (Home home : homes_of(device)) {
            const KernelSubject subject(*kernel, 43, false, device.raw(), home);
            Inputs inputs(kernel->problem, plain_shape(kernel->problem, 2, 9, 12, 44));
            polyhead_args args = inputs.args();
            args.query.shape[args.query.rank - 1]--; // fewer elements than there are: everything that is copied exists
            const polyhead_status status = subject.subject().run(args);
            INFO(subject.subject().name << ": " << status.message);
            CHECK(status.code == POLYHEAD_WRONG_SHAPE);
            CHECK(inputs.outputs_untouched());
        }
    }
}
