// CUDA devices on the driver that executes PTX (instruments/emulators/ptx), which reports the requests that it got: contexts, streams,
// memory.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "../runtime/devices/known_memory.h"
#include "cuda_functions.h"
#include "runtime_sum.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// The driver as if the program had just begun, with other devices. Nothing may be open.
struct Restarted {
    explicit Restarted(const char *variable = nullptr, const char *value = nullptr) : variable_(variable) {
        if (variable) {
            setenv(variable, value, 1);
        }
        CU(polyhead_cuda_driver_restart)();
        CU(cuInit)(0);
    }
    ~Restarted() {
        if (variable_) {
            unsetenv(variable_);
        }
        CU(polyhead_cuda_driver_restart)();
        CU(cuInit)(0);
    }
    const char *variable_;
};

Device opened(int index = 0, CUcontext context = nullptr, CUstream stream = nullptr) {
    Device device;
    const Status status = Device::open(Api::cuda, index, &device, context, stream);
    INFO(status.message());
    REQUIRE(status.ok());
    return device;
}

void run(const SumCall &call) {
    const Status status = sum_kernel().run(call.args);
    INFO(status.message());
    REQUIRE(status.ok());
}

// A context of its own, as a program makes it that uses the driver itself.
CUcontext new_context() {
    CUcontext context = nullptr, popped = nullptr;
    REQUIRE(CU(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
    REQUIRE(CU(cuCtxPopCurrent_v2)(&popped) == CUDA_SUCCESS);
    return context;
}

} // namespace

TEST_CASE("cuda: the primary context, and nothing stays behind", "[device]") {
    const Restarted restarted;
    CUcontext primary = nullptr;
    {
        const Device device = opened();
        CHECK(CU(polyhead_cuda_driver_contexts)() == 1);
        REQUIRE(CU(cuDevicePrimaryCtxRetain)(&primary, 0) == CUDA_SUCCESS);
        CHECK(CU(polyhead_cuda_driver_contexts)() == 1); // the one that polyhead uses
        SumCall call;
        call.args.device = &device;
        run(call);
        CHECK(call.out == call.expected());
        CHECK(CU(polyhead_cuda_driver_launches)(primary, nullptr) == 1);
        const uint64_t allocations = CU(polyhead_cuda_driver_allocations)();
        run(call);
        run(call);
        CHECK(CU(polyhead_cuda_driver_allocations)() == allocations); // freed memory is used again
        CHECK(CU(polyhead_cuda_driver_launches)(primary, nullptr) == 3);
        CHECK(CU(polyhead_cuda_driver_max_registers)() == 255);
    }
    CHECK(CU(polyhead_cuda_driver_memory_in_use)() == 0);
    unsigned flags = 0;
    int active = 0;
    CU(cuDevicePrimaryCtxGetState)(0, &flags, &active);
    CHECK(active == 1); // somebody else uses it still
    CHECK(CU(cuDevicePrimaryCtxRelease_v2)(0) == CUDA_SUCCESS);
    CHECK(CU(polyhead_cuda_driver_contexts)() == 0);
}

TEST_CASE("cuda: memory, context and stream of the caller", "[device]") {
    const Restarted restarted;
    const CUcontext context = new_context();
    CUstream stream = nullptr;
    CUcontext popped = nullptr;
    CUdeviceptr query = 0;
    REQUIRE(CU(cuCtxPushCurrent_v2)(context) == CUDA_SUCCESS);
    REQUIRE(CU(cuStreamCreate)(&stream, 1) == CUDA_SUCCESS);
    REQUIRE(CU(cuMemAlloc_v2)(&query, 4096) == CUDA_SUCCESS);
    REQUIRE(CU(cuCtxPopCurrent_v2)(&popped) == CUDA_SUCCESS);
    {
        const Device device = opened(0, context, stream);
        CHECK(CU(polyhead_cuda_driver_contexts)() == 1); // none of polyhead's or Halide's own
        SumCall call;
        call.args.device = &device;
        REQUIRE(device.copy_to_device(call.query.data(), call.query.size() * 4, at_address(query), 64).ok());
        call.args.query.data = at_address(query);
        call.args.query.offset = 16;
        call.args.query.device = device.raw();
        run(call);
        CHECK(call.out == call.expected());
        CHECK(CU(polyhead_cuda_driver_launches)(context, stream) == 1);
        CHECK(CU(polyhead_cuda_driver_launches)(nullptr, nullptr) == 1);
        CUcontext current = nullptr;
        CU(cuCtxGetCurrent)(&current);
        CHECK(current == nullptr); // as it was before the call
    }
    // Closing leaves context, stream and memory alone.
    REQUIRE(CU(cuCtxPushCurrent_v2)(context) == CUDA_SUCCESS);
    CHECK(CU(cuStreamSynchronize)(stream) == CUDA_SUCCESS);
    CHECK(CU(polyhead_cuda_driver_allocations)() == 1);
    CHECK(CU(cuMemFree_v2)(query) == CUDA_SUCCESS);
    CU(cuCtxDestroy_v2)(context);
}

TEST_CASE("cuda: contexts and memory that are refused", "[device]") {
    const Restarted restarted;
    const CUcontext context = new_context();
    float host[4];
    Device none;
    const Status status = Device::open(Api::cuda, 0, &none, host);
    CHECK(status.code() == POLYHEAD_NO_DEVICE);
    CHECK(std::string(status.message()).find("expected a CUcontext") != std::string::npos);
    {
        const Device device = opened(), other = opened(0, context);
        SumCall call;
        call.args.device = &device;
        const Held key(other, &call.args.key);
        call.args.key.device = device.raw();
        const Status refused = sum_kernel().run(call.args);
        CHECK(refused.code() == POLYHEAD_WRONG_DEVICE);
        CHECK(std::string(refused.message()).find("is memory of another context, expected memory of device ") != std::string::npos);
        call.args.device = &other;
        call.args.key.device = other.raw();
        run(call);
        CHECK(call.out == call.expected());
    }
    CU(cuCtxDestroy_v2)(context);
}

TEST_CASE("cuda: contexts that come and go at the same address", "[device]") {
    const Restarted restarted;
    for (int round = 0; round < 6; ++round) {
        const CUcontext context = new_context();
        {
            const Device device = opened(0, context);
            SumCall call(static_cast<float>(round));
            call.args.device = &device;
            run(call);
            CHECK(call.out == call.expected());
        }
        CHECK(CU(polyhead_cuda_driver_memory_in_use)() == 0);
        CU(cuCtxDestroy_v2)(context);
    }
}

TEST_CASE("cuda: two devices", "[device]") {
    const Restarted restarted("POLYHEAD_CUDA_DRIVER_DEVICES", "2");
    CHECK(Device::count(Api::cuda) == 2);
    const Device first = opened(0), second = opened(1);
    SumCall call;
    for (const Device *device : {&first, &second}) {
        call.args.device = device;
        call.out.assign(call.out.size(), -1.0f);
        run(call);
        CHECK(call.out == call.expected());
    }
    const Held key(first, &call.args.key);
    call.args.key.device = second.raw();
    CHECK(sum_kernel().run(call.args).code() == POLYHEAD_WRONG_DEVICE);
}

TEST_CASE("cuda: no memory left on the device", "[device]") {
    const Restarted restarted("POLYHEAD_CUDA_DRIVER_MEMORY", "65536");
    const Device device = opened();
    void *memory = nullptr;
    REQUIRE(device.allocate(64000, &memory).ok());
    SumCall call;
    call.args.device = &device;
    const Status status = sum_kernel().run(call.args);
    CHECK(status.code() == POLYHEAD_OUT_OF_MEMORY);
    CHECK(std::string(status.message()).find("CUDA_ERROR_OUT_OF_MEMORY") != std::string::npos);
    CHECK(call.out == std::vector<float>(call.out.size(), -1.0f));
    // The process goes on, the CPU kernel runs, and so does the device when there is memory again.
    call.args.device = nullptr;
    run(call);
    CHECK(call.out == call.expected());
    device.free(memory);
    call.args.device = &device;
    call.out.assign(call.out.size(), -1.0f);
    run(call);
    CHECK(call.out == call.expected());
}

TEST_CASE("cuda: a device that is too old for the code", "[device]") {
    const Restarted restarted("POLYHEAD_CUDA_DRIVER_CAPABILITY", "75");
    const Device device = opened();
    CHECK(!sum_kernel().supported(&device));
    SumCall call;
    call.args.device = &device;
    const Status status = sum_kernel().run(call.args);
    CHECK(status.code() == POLYHEAD_NO_DEVICE);
    INFO(status.message());
    CHECK(std::string(status.message()).find("(cuda 7.5): ") != std::string::npos);
    CHECK(std::string(status.message()).find("sum_cuda needs compute capability 8.0") != std::string::npos);
    call.args.device = nullptr;
    run(call);
    CHECK(call.out == call.expected());
}

TEST_CASE("cuda: a device with too little shared memory for the code", "[device]") {
    const Restarted restarted("POLYHEAD_CUDA_DRIVER_SHARED", "1024");
    const Device device = opened();
    const polyhead_kernel &own = sum_kernel();
    std::vector<polyhead_variant> variants(own.variants, own.variants + own.num_variants);
    polyhead_kernel table = own;
    table.variants = variants.data();
    SumCall call;
    call.args.device = &device;
    for (const int32_t bytes : {1025, 1024}) {
        for (polyhead_variant &variant : variants) {
            variant.shared_bytes = bytes;
        }
        const Status status = Kernel(table).run(call.args);
        INFO(status.message());
        CHECK(status.code() == (bytes > 1024 ? POLYHEAD_NO_DEVICE : POLYHEAD_OK));
        const bool said = std::string(status.message()).find("sum_cuda needs 1025 bytes of shared memory, of which a block has 1024") !=
                          std::string::npos;
        CHECK(said == (bytes > 1024));
    }
    CHECK(call.out == call.expected());
}

TEST_CASE("cuda: a driver without devices", "[device]") {
    const Restarted restarted("POLYHEAD_CUDA_DRIVER_DEVICES", "0");
    CHECK(Device::count(Api::cuda) == 0);
    Device device;
    const Status status = Device::open(Api::cuda, 0, &device);
    CHECK(status.code() == POLYHEAD_NO_DEVICE);
    INFO(status.message());
    CHECK(!device);
}

TEST_CASE("cuda: a limit of registers from the environment", "[device]") {
    setenv("HL_CUDA_JIT_MAX_REGISTERS", "96", 1);
    {
        const Restarted restarted;
        const Device device = opened();
        SumCall call;
        call.args.device = &device;
        run(call);
        CHECK(CU(polyhead_cuda_driver_max_registers)() == 96);
    }
    unsetenv("HL_CUDA_JIT_MAX_REGISTERS");
}

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
