// Warm calls on CUDA devices on the driver that executes PTX, which counts what it is asked for; what devices remember; CUDA graphs.
#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "../runtime/devices/kept_blocks.h"
#include "../runtime/devices/known_memory.h"
#include "runtime_cuda.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// A sum whose tensors lie on a device.
struct SumThere {
    explicit SumThere(const Device &device, float seed = 1)
        : call(seed), query(device, &call.args.query), key(device, &call.args.key), value(device, &call.args.value),
          out(device, &call.args.out) {
        call.args.device = &device;
    }
    SumCall call;
    const Held query, key, value, out;
};

// A context of its own with a stream that can be captured, current while this object exists.
struct OwnStream {
    OwnStream() : context(new_context()) {
        REQUIRE(CU(cuCtxPushCurrent_v2)(context) == CUDA_SUCCESS);
        REQUIRE(CU(cuStreamCreate)(&stream, 1) == CUDA_SUCCESS);
    }
    ~OwnStream() {
        CUcontext popped = nullptr;
        CU(cuCtxPopCurrent_v2)(&popped);
        CU(cuCtxDestroy_v2)(context);
    }
    void begin_capture() const { REQUIRE(CU(cuStreamBeginCapture_v2)(stream, 0) == CUDA_SUCCESS); }
    // Ends the capture, which nothing has spoiled, and runs what was captured.
    void run_captured() const {
        CUgraph graph = nullptr;
        CUgraphExec executable = nullptr;
        REQUIRE(CU(cuStreamEndCapture)(stream, &graph) == CUDA_SUCCESS);
        REQUIRE(CU(cuGraphInstantiateWithFlags)(&executable, graph, 0) == CUDA_SUCCESS);
        CHECK(CU(cuGraphLaunch)(executable, stream) == CUDA_SUCCESS);
        CU(cuGraphExecDestroy)(executable);
        CU(cuGraphDestroy)(graph);
    }
    CUcontext context;
    CUstream stream = nullptr;
};

std::string refused(const SumCall &call, const Kernel &kernel, int32_t code) {
    const Status status = kernel.run(call.args);
    CHECK(status.code() == code);
    return status.message();
}

} // namespace

TEST_CASE("cuda: a warm call is one launch and two other calls of the driver", "[device]") {
    const Restarted restarted;
    const Device device = opened();
    const SumThere there(device);
    run(there.call);
    const DriverCalls calls;
    run(there.call);
    CHECK(calls.of_launches() == 1);
    CHECK(calls.of_others() == 2);
    // Tensors on the host take memory that is kept.
    SumCall host;
    host.args.device = &device;
    run(host);
    const uint64_t allocations = CU(polyhead_cuda_driver_calls)("cuMemAlloc");
    run(host);
    CHECK(CU(polyhead_cuda_driver_calls)("cuMemAlloc") == allocations);
    CHECK(CU(polyhead_cuda_driver_calls)("cuModuleGetFunction") == 1);
}

TEST_CASE("cuda: a captured call, and what cannot be captured", "[device]") {
    const Restarted restarted;
    const OwnStream own;
    const Device device = opened(0, own.context, own.stream);
    SumThere there(device);
    const std::vector<float> untouched(there.call.out.size(), -1.0f);
    SumCall host;
    host.args.device = &device;
    void *memory = nullptr;
    own.begin_capture(); // before the first call
    CHECK(refused(there.call, sum_kernel(), POLYHEAD_UNSUPPORTED).find("make an equal call before the capture") != std::string::npos);
    own.run_captured(); // nothing, and the capture was not ended by the call
    CHECK(there.out.read() == untouched);
    run(there.call);
    SumThere again(device, 30);
    own.begin_capture();
    CHECK(refused(host, sum_kernel(), POLYHEAD_UNSUPPORTED).find("expected nothing that waits for the device") != std::string::npos);
    CHECK(device.synchronize().code() == POLYHEAD_UNSUPPORTED);
    CHECK(device.allocate(16, &memory).code() == POLYHEAD_UNSUPPORTED);
    CHECK(device.copy_to_device(untouched.data(), 4, again.out.data()).code() == POLYHEAD_UNSUPPORTED);
    CHECK(memory == nullptr);
    run(again.call);
    own.run_captured();
    CHECK(again.out.read() == again.call.expected());
}

TEST_CASE("cuda: memory that is freed during a capture is freed after it", "[device]") {
    const Restarted restarted;
    const OwnStream own;
    const Device device = opened(0, own.context, own.stream);
    SumThere there(device);
    run(there.call);
    void *memory = nullptr, *other = nullptr;
    REQUIRE(device.allocate(1000, &memory).ok());
    const uint64_t before = CU(polyhead_cuda_driver_allocations)();
    own.begin_capture();
    device.free(memory);
    run(there.call);
    own.run_captured();
    CHECK(CU(polyhead_cuda_driver_allocations)() == before);
    REQUIRE(device.allocate(1000, &other).ok());
    CHECK(CU(polyhead_cuda_driver_allocations)() == before);
    device.free(other);
    CHECK(CU(polyhead_cuda_driver_allocations)() == before - 1);
}

TEST_CASE("cuda: the default elements of a graph stay what they are", "[device]") {
    const Restarted restarted;
    const OwnStream own;
    const Device device = opened(0, own.context, own.stream), other = opened(0, own.context);
    SumThere there(device);
    const auto run_with = [&](int64_t keys) {
        there.call.args.key.shape[2] = there.call.args.value.shape[2] = keys;
        const Status status = sum_kernel_with_lengths().run(there.call.args);
        INFO(status.message());
        CHECK(status.ok());
    };
    const uint64_t before = CU(polyhead_cuda_driver_allocations)();
    for (int64_t keys = 7; keys > 0; --keys) {
        run_with(keys);
        CHECK(there.out.read() == there.call.expected(keys - 1));
    }
    CHECK(CU(polyhead_cuda_driver_allocations)() == before + 1); // the numbers from 0 on, in one piece
    {
        SumThere elsewhere(other); // of the same context
        elsewhere.call.args.key.shape[2] = elsewhere.call.args.value.shape[2] = 5;
        CHECK(sum_kernel_with_lengths().run(elsewhere.call.args).ok());
        CHECK(elsewhere.out.read() == elsewhere.call.expected(4));
    }
    CHECK(CU(polyhead_cuda_driver_allocations)() == before + 1);
}

TEST_CASE("cuda: kept blocks are large enough, and no larger than they must be", "[device]") {
    using runtime::KeptBlocks;
    for (size_t bytes = 1; bytes < (size_t(1) << 40); bytes += bytes / 7 + 1) {
        const size_t room = KeptBlocks::rounded(bytes);
        CHECK((room >= bytes && (room <= bytes + bytes / 4 || room == 4096) && KeptBlocks::rounded(room) == room));
    }
    KeptBlocks blocks;
    CHECK(blocks.take(1) == 0);
    for (const uint64_t address : {1000, 2000, 3000}) { // as long as their addresses
        CHECK(blocks.add(address, address));
    }
    CHECK(blocks.take(1) == 0); // all are taken
    CHECK((blocks.give_back(3000) && blocks.give_back(1000) && !blocks.give_back(4000)));
    CHECK(blocks.take(900) == 1000);
    CHECK(blocks.take(900) == 3000);
    CHECK((blocks.give_back(3000) && blocks.take(3001) == 0 && blocks.give_back(2000)));
    std::vector<uint64_t> freed;
    blocks.free_unused(2500, [&](uint64_t address) { freed.push_back(address); });
    CHECK(freed == std::vector<uint64_t>{2000});
    CHECK(blocks.take(1) == 3000);
}

TEST_CASE("cuda: known memory is what was added last", "[device]") {
    runtime::KnownMemory known;
    CHECK(!known.holds(100, 101));
    known.add(100, 200);
    known.add(300, 400);
    known.add(200, 210);
    CHECK((known.holds(100, 200) && known.holds(150, 151) && known.holds(300, 400) && known.holds(205, 210)));
    CHECK((!known.holds(99, 101) && !known.holds(199, 201) && !known.holds(390, 401) && !known.holds(250, 260) && !known.holds(500, 501)));
    known.add(150, 205); // over two of them
    CHECK((!known.holds(100, 101) && !known.holds(207, 208) && known.holds(150, 205) && known.holds(300, 400)));
    known.forget(399);
    CHECK((!known.holds(300, 301) && known.holds(204, 205)));
    known.forget_all();
    CHECK(!known.holds(204, 205));
    for (uint64_t i = 0; i < 3 * runtime::KnownMemory::most; ++i) {
        const uint64_t begin = (i * 7919 % 4096) * 16; // in no order
        known.add(begin, begin + 16);
        CHECK(known.holds(begin + 3, begin + 16));
        CHECK(!known.holds(begin + 3, begin + 17));
    }
}

TEST_CASE("cuda: what is known of memory lets calls go on and refuses none", "[device]") {
    const Restarted restarted;
    const OwnStream own;
    const Device device = opened(0, own.context);
    SumThere there(device);
    run(there.call);
    const auto queries = [] { return CU(polyhead_cuda_driver_calls)("cuPointerGetAttribute"); };
    const uint64_t before = queries();
    run(there.call);
    CHECK(queries() == before);
    // Memory of somebody else is asked for once.
    CUdeviceptr memory = 0;
    const size_t bytes = there.call.out.size() * 4;
    REQUIRE(CU(cuMemAlloc_v2)(&memory, 2 * bytes) == CUDA_SUCCESS);
    there.call.args.out.data = at_address(memory);
    run(there.call);
    const uint64_t asked = queries();
    CHECK(asked > before);
    there.call.args.out.offset = static_cast<int64_t>(bytes / 4); // another part of it
    run(there.call);
    CHECK(queries() == asked);
    there.call.args.out.offset++; // reaches beyond it
    CHECK(refused(there.call, sum_kernel(), POLYHEAD_WRONG_DEVICE).find("out: takes ") == 0);
    // Memory of the library is forgotten when it is freed.
    void *own_memory = nullptr;
    REQUIRE(device.allocate(bytes, &own_memory).ok());
    there.call.args.out.data = own_memory;
    there.call.args.out.offset = 0;
    run(there.call);
    device.free(own_memory);
    CHECK(refused(there.call, sum_kernel(), POLYHEAD_WRONG_DEVICE).find("out: address ") == 0);
    // What the driver has refused is asked for again.
    there.call.args.out.data = at_address(memory);
    run(there.call);
    REQUIRE(CU(cuMemFree_v2)(memory) == CUDA_SUCCESS);
    float number = 0;
    CHECK(device.copy_to_device(&number, 4, at_address(memory)).code() == POLYHEAD_INTERNAL);
    CHECK(refused(there.call, sum_kernel(), POLYHEAD_WRONG_DEVICE).find("out: address ") == 0);
}

namespace {

// Nanoseconds of one call, the least of several rounds.
double time_of(const SdpaArgs &args, int calls) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) {
        REQUIRE(sum_kernel().run(args).ok());
    }
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / calls;
}

} // namespace

TEST_CASE("cuda: a warm call takes the host little longer than a small call on the CPU", "[device]") {
    const Restarted restarted;
    const Device device = opened();
    const SumCall host;
    const SumThere there(device);
    CU(polyhead_cuda_driver_execute)(0);
    double on_cpu = 1e9, on_device = 1e9;
    for (int round = 0; round < 30; ++round) {
        on_cpu = std::min(on_cpu, time_of(host.args, 500));
        on_device = std::min(on_device, time_of(there.call.args, 500));
    }
    INFO("on the CPU " << on_cpu << " ns, on the device " << on_device << " ns");
    CHECK(on_device <= 4 * on_cpu);
    CU(polyhead_cuda_driver_execute)(1);
}
