// CUDA devices on the driver that executes PTX (instruments/emulators/ptx), which reports the requests that it got: contexts, streams,
// memory.
#include <cstdlib>
#include <string>
#include <vector>

#include "runtime_cuda.h"

using namespace polyhead;
using namespace polyhead::test;

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

TEST_CASE("cuda: more shared memory than every device has is asked for, as far as the device has it", "[device]") {
    for (const int kilobytes : {99, 100}) {
        const Restarted restarted("POLYHEAD_CUDA_DRIVER_CAPABILITY", "86");
        const Device device = opened();
        SumCall call;
        call.args.device = &device;
        for (int time = 0; time < 2; time++) {
            call.out.assign(call.out.size(), -1.0f);
            shared_bytes_of_sum = kilobytes << 10;
            const Status status = sum_kernel().run(call.args);
            shared_bytes_of_sum = 0;
            INFO(status.message());
            CHECK(status.ok() == (kilobytes == 99));
            CHECK(call.out == (kilobytes == 99 ? call.expected() : std::vector<float>(call.out.size(), -1.0f)));
        }
    }
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
