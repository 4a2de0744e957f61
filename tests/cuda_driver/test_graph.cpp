// Streams that are captured, graphs, and how often functions of the driver were called.
#include "test_program.h"

#include <functional>
#include <utility>

using namespace polyhead::test;

namespace {

const char *const adding = R"(
.version 7.1
.target sm_80
.address_size 64
.visible .entry add(.param .u64 a0, .param .u32 a1)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [a0];
    ld.param.u32 %r1, [a1];
    ld.global.u32 %r2, [%rd1];
    add.s32 %r3, %r2, %r1;
    st.global.u32 [%rd1], %r3;
    ret;
}
)";

// The number at this address, and a kernel that adds to it.
struct Adding {
    Adding() {
        REQUIRE(cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
        REQUIRE(cuModuleLoadData(&module, adding) == CUDA_SUCCESS);
        REQUIRE(cuModuleGetFunction(&function, module, "add") == CUDA_SUCCESS);
        address = upload(std::vector<int>{5});
    }
    CUresult add(int number) {
        void *parameters[] = {&address, &number};
        return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
    }
    int now() const { return download<int>(address, 1)[0]; }

    CUstream stream = nullptr;
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    CUdeviceptr address = 0;
};

int capture_status(CUstream stream) {
    int status = -1;
    CHECK(cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS);
    return status;
}

} // namespace

TEST_CASE("driver: a captured stream does nothing, and its graph does it each time") {
    const Fresh fresh;
    Adding program;
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    CHECK(capture_status(program.stream) == 0);
    REQUIRE(cuStreamBeginCapture_v2(program.stream, 0) == CUDA_SUCCESS);
    CHECK(capture_status(program.stream) == 1);
    CHECK(program.add(3) == CUDA_SUCCESS);
    CHECK(program.add(4) == CUDA_SUCCESS);
    REQUIRE(cuStreamEndCapture(program.stream, &graph) == CUDA_SUCCESS);
    CHECK(capture_status(program.stream) == 0);
    CHECK(program.now() == 5);
    CHECK(polyhead_cuda_driver_launches(nullptr, nullptr) == 0);
    REQUIRE(cuGraphInstantiateWithFlags(&executable, graph, 0) == CUDA_SUCCESS);
    for (const int expected : {12, 19}) {
        CHECK(cuGraphLaunch(executable, program.stream) == CUDA_SUCCESS);
        CHECK(program.now() == expected);
    }
    CHECK(polyhead_cuda_driver_launches(nullptr, nullptr) == 4);
    CHECK(cuModuleUnload(program.module) == CUDA_SUCCESS);
    CHECK(cuGraphLaunch(executable, program.stream) == CUDA_ERROR_INVALID_HANDLE); // its kernel is gone
    CHECK(cuGraphExecDestroy(executable) == CUDA_SUCCESS);
    CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
    CHECK(cuGraphDestroy(graph) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("driver: what waits or allocates ends a capture") {
    const Fresh fresh;
    Adding program;
    CUdeviceptr other = 0;
    CUmodule module = nullptr;
    int number = 0;
    const std::vector<std::pair<const char *, std::function<CUresult()>>> forbidden = {
        {"allocate", [&] { return cuMemAlloc_v2(&other, 16); }},
        {"free", [&] { return cuMemFree_v2(program.address); }},
        {"copy", [&] { return cuMemcpyHtoD_v2(program.address, &number, 4); }},
        {"copy back", [&] { return cuMemcpyDtoH_v2(&number, program.address, 4); }},
        {"fill", [&] { return cuMemsetD32_v2(program.address, 1, 1); }},
        {"wait for the stream", [&] { return cuStreamSynchronize(program.stream); }},
        {"wait", [&] { return cuCtxSynchronize(); }},
        {"load", [&] { return cuModuleLoadData(&module, adding); }},
    };
    for (const auto &[name, call] : forbidden) {
        INFO(name);
        CUgraph graph = nullptr;
        REQUIRE(cuStreamBeginCapture_v2(program.stream, 0) == CUDA_SUCCESS);
        CHECK(call() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        CHECK(capture_status(program.stream) == 2);
        CHECK(cuStreamEndCapture(program.stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        CHECK(program.now() == 5);
    }
    CHECK(cuStreamBeginCapture_v2(nullptr, 0) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

TEST_CASE("driver: copies, fills and memory in a graph") {
    const Fresh fresh;
    Adding program;
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    CUdeviceptr memory = 0, elsewhere = 0;
    REQUIRE(cuMemAllocAsync(&elsewhere, 16, program.stream) == CUDA_SUCCESS);
    CHECK(cuMemFreeAsync(elsewhere, program.stream) == CUDA_SUCCESS);
    const uint64_t before = polyhead_cuda_driver_allocations();
    REQUIRE(cuStreamBeginCapture_v2(program.stream, 0) == CUDA_SUCCESS);
    REQUIRE(cuMemAllocAsync(&memory, 4, program.stream) == CUDA_SUCCESS);
    CHECK(cuMemsetD32Async(memory, 30, 1, program.stream) == CUDA_SUCCESS);
    CHECK(cuMemcpyDtoDAsync_v2(program.address, memory, 4, program.stream) == CUDA_SUCCESS);
    CHECK(program.add(1) == CUDA_SUCCESS);
    CHECK(cuMemFreeAsync(memory, program.stream) == CUDA_SUCCESS);
    CHECK(cuMemFreeAsync(program.address, program.stream) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuStreamEndCapture(program.stream, &graph) == CUDA_SUCCESS);
    CHECK(program.now() == 5);
    REQUIRE(cuGraphInstantiateWithFlags(&executable, graph, 0) == CUDA_SUCCESS);
    CHECK(cuGraphLaunch(executable, program.stream) == CUDA_SUCCESS);
    CHECK(program.now() == 31);
    CHECK(polyhead_cuda_driver_allocations() == before + 1);
    CHECK(cuGraphExecDestroy(executable) == CUDA_SUCCESS);
    CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
    CHECK(polyhead_cuda_driver_allocations() == before);
}

TEST_CASE("driver: calls are counted by name, and not those of one function by another") {
    const Fresh fresh;
    Adding program;
    polyhead_cuda_driver_reset_statistics();
    CHECK(polyhead_cuda_driver_calls("") == 0);
    int number = 1;
    CHECK(cuStreamSynchronize(program.stream) == CUDA_SUCCESS); // asks by cuStreamQuery
    CHECK(cuMemcpyHtoDAsync_v2(program.address, &number, 4, program.stream) == CUDA_SUCCESS);
    CHECK(cuMemsetD32_v2(program.address, 7, 1) == CUDA_SUCCESS);
    CHECK(polyhead_cuda_driver_calls("cuStreamSynchronize") == 1);
    CHECK(polyhead_cuda_driver_calls("cuStreamQuery") == 0);
    CHECK(polyhead_cuda_driver_calls("cuMemcpyHtoDAsync") == 1);
    CHECK(polyhead_cuda_driver_calls("cuMemcpyHtoD") == 0);
    CHECK(polyhead_cuda_driver_calls("") == 3);
    polyhead_cuda_driver_execute(0);
    CHECK(program.add(2) == CUDA_SUCCESS);
    CHECK(program.now() == 7);
    CHECK(polyhead_cuda_driver_launches(nullptr, nullptr) == 1);
    CHECK(polyhead_cuda_driver_calls("cuLaunchKernel") == 1);
    polyhead_cuda_driver_execute(1);
    CHECK(program.add(2) == CUDA_SUCCESS);
    CHECK(program.now() == 9);
}
