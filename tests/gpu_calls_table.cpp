// What a warm call asks of the CUDA driver: its launches and two calls more, and no memory. And that calls become parts of a CUDA graph.
// All of it on the driver of the tests, which counts.
#include "counted_allocations.h"
#include "cuda_functions.h"
#include "gpu_tests.h"
#include "instruments/calls/device_call.h"
#include "instruments/calls/not_run.h"
#include "instruments/calls/problems.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// Launches do nothing while this object exists: then the driver takes no memory, and what is counted is the library's.
struct WithoutWork {
    WithoutWork() { CU(polyhead_cuda_driver_execute)(0); }
    ~WithoutWork() { CU(polyhead_cuda_driver_execute)(1); }
};

// The device of the tests once more, on a stream that can be captured.
class DeviceOnStream {
public:
    DeviceOnStream() {
        CUcontext popped = nullptr;
        REQUIRE(CU(cuDevicePrimaryCtxRetain)(&context_, 0) == CUDA_SUCCESS);
        REQUIRE(CU(cuCtxPushCurrent_v2)(context_) == CUDA_SUCCESS);
        REQUIRE(CU(cuStreamCreate)(&stream, 1) == CUDA_SUCCESS);
        REQUIRE(CU(cuCtxPopCurrent_v2)(&popped) == CUDA_SUCCESS);
        REQUIRE(Device::open(Api::cuda, 0, &device, nullptr, stream).ok());
    }
    ~DeviceOnStream() {
        device = Device();
        CU(cuStreamDestroy_v2)(stream);
        CU(cuDevicePrimaryCtxRelease_v2)(0);
    }
    CUcontext context() const { return context_; }

    Device device;
    CUstream stream = nullptr;

private:
    CUcontext context_ = nullptr;
};

class Current {
public:
    explicit Current(CUcontext context) { REQUIRE(CU(cuCtxPushCurrent_v2)(context) == CUDA_SUCCESS); }
    ~Current() {
        CUcontext popped = nullptr;
        CU(cuCtxPopCurrent_v2)(&popped);
    }
};

Shape short_shape(const polyhead_kernel &forced) {
    return plain_shape(call_problem(forced), 1, serves(forced, 1) ? 1 : 3, 5, 5);
}

bool on_driver_of_tests(const TestDevice &device) {
    return device.api() == Api::cuda && emulated();
}

// check(kernel, call) for every variant, with a call that has run before.
template <typename Check> void for_each_warm_call(const TestDevice &tested, polyhead_device *device, const Check &check) {
    for (const Kernel *kernel : kernels_for(tested)) {
        for (const polyhead_kernel &forced : forced_variants(*kernel, tested)) {
            const Shape shape = short_shape(forced);
            if (!serves(forced, shape.seq_len_q)) {
                continue;
            }
            const KernelSubject subject(forced, 7, false, device, Home::device);
            const Inputs inputs(call_problem(forced), shape);
            DeviceCall call(device, Home::device, subject.prepared(inputs.args()));
            REQUIRE(call.status().code == POLYHEAD_OK);
            INFO(forced.name << " " << forced.variants[0].name);
            REQUIRE(polyhead_run(&forced, &call.args()).code == POLYHEAD_OK);
            check(forced, call, inputs);
        }
    }
}

// The outputs of a call, as they are on the device.
std::vector<std::vector<float>> outputs(const polyhead_kernel &kernel, DeviceCall &call, const Inputs &inputs) {
    CHECK(call.read_back() == "");
    std::vector<std::vector<float>> values;
    for (const CallTensor &output : outputs_of(kernel.problem.op)) {
        values.push_back(inputs.read(output.tensor));
    }
    return values;
}

// The captured work as a graph that has run.
void run_graph(CUgraph graph, CUstream stream) {
    CUgraphExec executable = nullptr;
    REQUIRE(CU(cuGraphInstantiateWithFlags)(&executable, graph, 0) == CUDA_SUCCESS);
    CHECK(CU(cuGraphLaunch)(executable, stream) == CUDA_SUCCESS);
    CHECK(CU(cuGraphExecDestroy)(executable) == CUDA_SUCCESS);
    CHECK(CU(cuGraphDestroy)(graph) == CUDA_SUCCESS);
}

} // namespace

TEST_CASE("gpu calls: a warm call of every variant makes its launches and two other calls of the driver, and allocates nothing") {
    const TestDevice &device = required_device();
    if (!on_driver_of_tests(device)) {
        return;
    }
    int single = 0;
    for_each_warm_call(device, device.raw(), [&](const polyhead_kernel &kernel, DeviceCall &call, const Inputs &) {
        const WithoutWork without;
        const uint64_t blocks = CU(polyhead_cuda_driver_allocations)();
        REQUIRE(polyhead_run(&kernel, &call.args()).code == POLYHEAD_OK);
        const DriverCalls calls;
        const long before = allocations_so_far();
        const int32_t code = polyhead_run(&kernel, &call.args()).code;
        const long after = allocations_so_far();
        CHECK(code == POLYHEAD_OK);
        CHECK(after == before);
        CHECK(calls.of_launches() >= 1);
        CHECK(calls.of_others() == 2);
        CHECK(CU(polyhead_cuda_driver_allocations)() == blocks);
        single += calls.of_launches() == 1;
    });
    check_some(single, "calls of one launch", device);
}

TEST_CASE("gpu calls: a call without its masks and biases waits for nothing, and has the bits of one with neutral ones") {
    const TestDevice &device = required_device();
    if (!on_driver_of_tests(device)) {
        return;
    }
    int rows = 0;
    for_each_warm_call(device, device.raw(), [&](const polyhead_kernel &kernel, DeviceCall &call, const Inputs &inputs) {
        const Problem &p = kernel.problem;
        if (p.mask == 0 && p.score_bias == 0) {
            return;
        }
        polyhead_args args = call.args();
        std::vector<void *> memory;
        for (polyhead_tensor polyhead_args::*const tensor : {&polyhead_args::mask, &polyhead_args::score_bias}) {
            polyhead_tensor &neutral = args.*tensor;
            if (neutral.rank == 0) {
                continue;
            }
            int64_t last = neutral.offset;
            for (int i = 0; i < neutral.rank; ++i) {
                last += (neutral.shape[i] - 1) * neutral.stride[i];
            }
            const size_t element = static_cast<size_t>(contract::dtype_bytes(neutral.dtype));
            const std::vector<char> bytes((static_cast<size_t>(last) + 1) * element, neutral.dtype == POLYHEAD_BOOL);
            REQUIRE(polyhead_device_allocate(device.raw(), bytes.size(), &neutral.data).code == POLYHEAD_OK);
            REQUIRE(polyhead_copy_to_device(device.raw(), bytes.data(), bytes.size(), neutral.data, 0).code == POLYHEAD_OK);
            memory.push_back(neutral.data);
        }
        REQUIRE(polyhead_run(&kernel, &args).code == POLYHEAD_OK);
        const std::vector<std::vector<float>> expected = outputs(kernel, call, inputs);
        for (void *const one : memory) {
            polyhead_device_free(device.raw(), one);
        }
        args.mask = args.score_bias = polyhead_tensor{};
        REQUIRE(polyhead_run(&kernel, &args).code == POLYHEAD_OK);
        const std::vector<std::vector<float>> found = outputs(kernel, call, inputs);
        for (size_t i = 0; i < found.size(); ++i) {
            CHECK(same_bits(found[i], expected[i]));
        }
        const DriverCalls calls;
        REQUIRE(polyhead_run(&kernel, &args).code == POLYHEAD_OK);
        CHECK(calls.of_others() == 2);
        ++rows;
    });
    check_some(rows, "calls without their masks", device);
}

TEST_CASE("gpu calls: lengths that grow are no new work for the driver") {
    const TestDevice &device = required_device();
    if (!on_driver_of_tests(device)) {
        return;
    }
    for (const Kernel *kernel : kernels_for(device)) {
        const Problem &p = kernel->problem;
        const bool pairs = p.mask != 0 || p.score_bias != 0 || p.scores != 0 || p.weights_mean != 0; // tensors with an extent of keys
        if (!is_sdpa(p) || p.kv_lengths == 0 || p.seq_len_q != 0 || p.seq_len_kv != 0 || p.page_size != 0 || pairs) {
            continue;
        }
        const KernelSubject subject(*kernel, 7, false, device.raw(), Home::device);
        const Shape shape = plain_shape(call_problem(*kernel), 1, 3, 60, 5);
        const Inputs inputs(call_problem(*kernel), shape);
        DeviceCall call(device.raw(), Home::device, subject.prepared(inputs.args()));
        const WithoutWork without;
        polyhead_args args = call.args();
        args.kv_lengths = polyhead_tensor{}; // its number of keys is written on the device by the library
        REQUIRE(polyhead_run(kernel, &args).code == POLYHEAD_OK);
        for (int64_t keys = 1; keys < 60; ++keys) {
            for (polyhead_tensor polyhead_args::*const tensor :
                 {&polyhead_args::key, &polyhead_args::value, &polyhead_args::key_scales, &polyhead_args::value_scales}) {
                if ((args.*tensor).rank == 4) {
                    (args.*tensor).shape[2] = keys;
                }
            }
            const DriverCalls calls;
            const polyhead_status status = polyhead_run(kernel, &args);
            INFO(kernel->name << ", " << keys << " keys: " << status.message);
            CHECK(status.code == POLYHEAD_OK);
            CHECK(calls.of_others() == 2);
        }
    }
}

TEST_CASE("gpu calls: every variant in a CUDA graph, with the bits of a call") {
    const TestDevice &device = required_device();
    if (!on_driver_of_tests(device)) {
        return;
    }
    const DeviceOnStream there;
    const Current current(there.context());
    int with_memory = 0;
    for_each_warm_call(device, there.device.raw(), [&](const polyhead_kernel &kernel, DeviceCall &call, const Inputs &inputs) {
        const std::vector<std::vector<float>> expected = outputs(kernel, call, inputs);
        const uint64_t blocks = CU(polyhead_cuda_driver_allocations)();
        const DriverCalls calls;
        REQUIRE(polyhead_run(&kernel, &call.args()).code == POLYHEAD_OK);
        CHECK(calls.of_others() <= 3); // and whether the stream is captured, where a kernel takes memory
        const bool takes_memory = calls.of_others() == 3;
        const uint32_t wrong = 0x41414141;
        const polyhead_tensor &out = call.args().out;
        const size_t bytes = static_cast<size_t>(contract::dtype_bytes(out.dtype)), first = static_cast<size_t>(out.offset) * bytes;
        REQUIRE(polyhead_copy_to_device(there.device.raw(), &wrong, bytes, out.data, first).code == POLYHEAD_OK);
        const uint64_t launches = CU(polyhead_cuda_driver_launches)(nullptr, nullptr);
        CUgraph graph = nullptr;
        REQUIRE(CU(cuStreamBeginCapture_v2)(there.stream, 0) == CUDA_SUCCESS);
        const uint64_t before = CU(polyhead_cuda_driver_calls)("cuMemAllocAsync");
        const polyhead_status status = polyhead_run(&kernel, &call.args());
        CHECK((CU(polyhead_cuda_driver_calls)("cuMemAllocAsync") > before) == takes_memory); // of the graph, not of the device
        with_memory += takes_memory;
        REQUIRE(CU(cuStreamEndCapture)(there.stream, &graph) == CUDA_SUCCESS);
        INFO(status.message);
        REQUIRE(status.code == POLYHEAD_OK);
        CHECK(CU(polyhead_cuda_driver_launches)(nullptr, nullptr) == launches); // nothing was done yet
        run_graph(graph, there.stream);
        const std::vector<std::vector<float>> found = outputs(kernel, call, inputs);
        for (size_t i = 0; i < found.size(); ++i) {
            CHECK(same_bits(found[i], expected[i]));
        }
        CHECK(CU(polyhead_cuda_driver_allocations)() == blocks); // what the graph had went with it
    });
    check_some(with_memory, "graphs that take memory", device);
}
