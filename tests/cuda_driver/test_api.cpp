// The driver as a program sees it: start, contexts, memory, streams, modules, refused launches.
#include "test_program.h"

using namespace polyhead::test;

namespace {

const char *const store_thread = "mul.wide.u32 %d2, %r0, 4;\nadd.s64 %d2, %d0, %d2;\nst.global.b32 [%d2], %r0;\nret;";

// CUDA passes numbers and device addresses as C pointers.
void *as_pointer(uint64_t value) {
    void *pointer = nullptr;
    std::memcpy(&pointer, &value, sizeof(pointer));
    return pointer;
}

CUmodule load(const std::string &ptx) {
    CUmodule module = nullptr;
    REQUIRE(cuModuleLoadData(&module, ptx.c_str()) == CUDA_SUCCESS);
    return module;
}

} // namespace

TEST_CASE("nothing works before cuInit, and cuInit wants a device", "[cuda_driver]") {
    int count = -1;
    {
        const Fresh fresh({"DEVICES=0"});
        REQUIRE(cuInit(0) == CUDA_ERROR_NO_DEVICE);
        REQUIRE(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED);
    }
    REQUIRE(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED);
    const Fresh fresh({"DEVICES=3", "CAPABILITY=86"});
    REQUIRE(cuDeviceGetCount(&count) == CUDA_SUCCESS);
    REQUIRE(count == 3);
    CUdevice device = -1;
    REQUIRE(cuDeviceGet(&device, 3) == CUDA_ERROR_INVALID_DEVICE);
    REQUIRE(cuDeviceGet(&device, 2) == CUDA_SUCCESS);
    int major = 0, minor = 0;
    REQUIRE(cuDeviceGetAttribute(&major, 75, device) == CUDA_SUCCESS);
    REQUIRE(cuDeviceGetAttribute(&minor, 76, device) == CUDA_SUCCESS);
    REQUIRE((major == 8 && minor == 6));
    char name[64] = {};
    REQUIRE(cuDeviceGetName(name, sizeof(name), device) == CUDA_SUCCESS);
    REQUIRE(std::string(name) == "PTX interpreter");
}

TEST_CASE("contexts: a stack per thread, a primary one that is counted", "[cuda_driver]") {
    const Fresh fresh;
    CUcontext current = nullptr, primary = nullptr, again = nullptr, popped = nullptr;
    REQUIRE(cuCtxGetCurrent(&current) == CUDA_SUCCESS);
    REQUIRE(current == fresh.context);
    REQUIRE(cuDevicePrimaryCtxRetain(&primary, 0) == CUDA_SUCCESS);
    REQUIRE(cuDevicePrimaryCtxRetain(&again, 0) == CUDA_SUCCESS);
    REQUIRE(primary == again);
    REQUIRE(primary != fresh.context);
    REQUIRE(polyhead_cuda_driver_contexts() == 2);
    REQUIRE(cuCtxPushCurrent_v2(primary) == CUDA_SUCCESS);
    REQUIRE(cuCtxPopCurrent_v2(&popped) == CUDA_SUCCESS);
    REQUIRE(popped == primary);
    REQUIRE(cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS);
    REQUIRE(cuCtxPushCurrent_v2(primary) == CUDA_SUCCESS);
    REQUIRE(cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS); // the last one: it is freed
    CUdeviceptr address = 0;
    REQUIRE(cuMemAlloc_v2(&address, 16) == CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(cuCtxPopCurrent_v2(nullptr) == CUDA_SUCCESS);
    REQUIRE(cuDevicePrimaryCtxRelease_v2(0) == CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(cuCtxDestroy_v2(fresh.context) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(cuCtxPushCurrent_v2(fresh.context) == CUDA_ERROR_INVALID_CONTEXT);
}

TEST_CASE("memory: limit, release, ranges, host pointers", "[cuda_driver]") {
    const Fresh fresh({"MEMORY=1000"});
    CUdeviceptr first = 0, second = 0;
    REQUIRE(cuMemAlloc_v2(&first, 600) == CUDA_SUCCESS);
    REQUIRE(cuMemAlloc_v2(&second, 600) == CUDA_ERROR_OUT_OF_MEMORY);
    REQUIRE(error_says("400 are left"));
    REQUIRE(cuMemAlloc_v2(&second, 400) == CUDA_SUCCESS);
    REQUIRE(polyhead_cuda_driver_memory_in_use() == 1000);
    REQUIRE(polyhead_cuda_driver_allocations() == 2);
    char host[700] = {};
    REQUIRE(cuMemcpyHtoD_v2(first, host, 601) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemcpyHtoD_v2(first + 100, host, 500) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyDtoH_v2(host, reinterpret_cast<uintptr_t>(host), 4) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemcpyDtoH_v2(as_pointer(first), first, 4) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemcpyDtoD_v2(second, first, 400) == CUDA_SUCCESS);
    CUdeviceptr begin = 0;
    size_t bytes = 0;
    REQUIRE(cuMemGetAddressRange_v2(&begin, &bytes, first + 599) == CUDA_SUCCESS);
    REQUIRE((begin == first && bytes == 600));
    unsigned type = 0;
    REQUIRE(cuPointerGetAttribute(&type, 2, first) == CUDA_SUCCESS);
    REQUIRE(type == 2);
    REQUIRE(cuPointerGetAttribute(&type, 2, reinterpret_cast<uintptr_t>(host)) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemFree_v2(first + 4) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(cuMemFree_v2(first) == CUDA_SUCCESS);
    REQUIRE(cuMemFree_v2(first) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(polyhead_cuda_driver_memory_in_use() == 400);
}

TEST_CASE("modules that cannot be loaded", "[cuda_driver]") {
    const Fresh fresh;
    CUmodule module = nullptr;
    REQUIRE(cuModuleLoadData(&module, module_of("ret;", "sm_90").c_str()) == CUDA_ERROR_NO_BINARY_FOR_GPU);
    REQUIRE(error_says("90"));
    REQUIRE(cuModuleLoadData(&module, module_of("ret;", "sm_75").c_str()) == CUDA_SUCCESS);
    REQUIRE(cuModuleLoadData(&module, "\x7f"
                                      "ELF") == CUDA_ERROR_INVALID_IMAGE);
    REQUIRE(cuModuleLoadData(&module, module_of("bra $nowhere;").c_str()) == CUDA_ERROR_INVALID_PTX);
    REQUIRE(error_says("$nowhere"));
    REQUIRE(cuModuleLoadData(&module, module_of(".weird directive;\nret;").c_str()) == CUDA_ERROR_INVALID_PTX);
    char log[200] = {};
    int options[] = {0, 5, 6};
    void *values[] = {as_pointer(255), log, as_pointer(sizeof(log))};
    REQUIRE(cuModuleLoadDataEx(&module, module_of("bra $nowhere;").c_str(), 3, options, values) == CUDA_ERROR_INVALID_PTX);
    REQUIRE(std::string(log).find("$nowhere") != std::string::npos);
    REQUIRE(polyhead_cuda_driver_max_registers() == 255);
    CUfunction function = nullptr;
    module = load(module_of("ret;"));
    REQUIRE(cuModuleGetFunction(&function, module, "other") == CUDA_ERROR_NOT_FOUND);
    REQUIRE(polyhead_cuda_driver_max_registers() == 0);
}

TEST_CASE("launches that are refused", "[cuda_driver]") {
    const Fresh fresh;
    const CUmodule module = load(module_of("ret;"));
    const auto shaped = [&](unsigned grid, unsigned block_x, unsigned block_y, unsigned shared) {
        Grid shape;
        shape.grid[0] = grid;
        shape.block[0] = block_x;
        shape.block[1] = block_y;
        shape.shared = shared;
        return launch(module, 0, 0, shape);
    };
    REQUIRE(shaped(1, 1024, 1, 49152) == CUDA_SUCCESS);
    REQUIRE(shaped(0, 32, 1, 0) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(shaped(1, 0, 1, 0) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(shaped(1, 1025, 1, 0) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(shaped(1, 64, 32, 0) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(shaped(1, 32, 1, 49153) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(error_says("49153 bytes of shared memory"));
    CUfunction function = nullptr;
    REQUIRE(cuModuleGetFunction(&function, module, "kernel") == CUDA_SUCCESS);
    REQUIRE(cuFuncSetAttribute(function, 8, 65536) == CUDA_SUCCESS);
    REQUIRE(shaped(1, 32, 1, 65536) == CUDA_SUCCESS);
    REQUIRE(cuFuncSetAttribute(function, 8, 1 << 20) == CUDA_ERROR_INVALID_VALUE);

    CUcontext other = nullptr;
    CUstream stream = nullptr, foreign = nullptr;
    REQUIRE(cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
    REQUIRE(cuCtxCreate_v2(&other, 0, 0) == CUDA_SUCCESS);
    REQUIRE(launch(module, 0, 0) == CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(cuStreamCreate(&foreign, 0) == CUDA_SUCCESS);
    REQUIRE(cuCtxPopCurrent_v2(nullptr) == CUDA_SUCCESS);
    REQUIRE(launch(module, 0, 0, {}, foreign) == CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(launch(module, 0, 0, {}, stream) == CUDA_SUCCESS);
    REQUIRE(launch(module, 0, 0, {}, stream) == CUDA_SUCCESS);
    REQUIRE(polyhead_cuda_driver_launches(fresh.context, stream) == 2);
    REQUIRE(polyhead_cuda_driver_launches(fresh.context, nullptr) == 2);
    REQUIRE(polyhead_cuda_driver_launches(other, foreign) == 0);
    REQUIRE(polyhead_cuda_driver_launches(nullptr, nullptr) == 4);
    REQUIRE(cuModuleUnload(module) == CUDA_SUCCESS);
    void *parameters[] = {nullptr, nullptr};
    REQUIRE(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("memory of another device is out of reach of a kernel, not of a copy", "[cuda_driver]") {
    const Fresh fresh({"DEVICES=2"});
    const CUdeviceptr mine = upload(std::vector<uint32_t>(32, 1));
    CUcontext other = nullptr;
    REQUIRE(cuCtxCreate_v2(&other, 0, 1) == CUDA_SUCCESS);
    const CUdeviceptr theirs = upload(std::vector<uint32_t>(32, 2));
    REQUIRE(launch(load(module_of(store_thread)), theirs, 0) == CUDA_SUCCESS);
    REQUIRE(launch(load(module_of(store_thread)), mine, 0) == CUDA_ERROR_ILLEGAL_ADDRESS);
    REQUIRE(cuMemcpyDtoD_v2(mine, theirs, 128) == CUDA_SUCCESS);
    REQUIRE(download<uint32_t>(mine, 32)[31] == 31);
    int ordinal = -1;
    REQUIRE(cuPointerGetAttribute(&ordinal, 9, theirs) == CUDA_SUCCESS);
    REQUIRE(ordinal == 1);
}

TEST_CASE("events and statistics", "[cuda_driver]") {
    const Fresh fresh;
    CUevent before = nullptr, after = nullptr;
    REQUIRE(cuEventCreate(&before, 0) == CUDA_SUCCESS);
    REQUIRE(cuEventCreate(&after, 0) == CUDA_SUCCESS);
    float milliseconds = -1;
    REQUIRE(cuEventElapsedTime(&milliseconds, before, after) == CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(cuEventRecord(before, nullptr) == CUDA_SUCCESS);
    REQUIRE(run(store_thread, upload(std::vector<uint32_t>(32, 0)), 0) == CUDA_SUCCESS);
    REQUIRE(cuEventRecord(after, nullptr) == CUDA_SUCCESS);
    REQUIRE(cuEventElapsedTime(&milliseconds, before, after) == CUDA_SUCCESS);
    REQUIRE(milliseconds >= 0);
    REQUIRE(polyhead_cuda_driver_executed("st.global.b32") == 1);
    REQUIRE(polyhead_cuda_driver_executed("st.global.b3") == 0);
    std::string text(polyhead_cuda_driver_statistics(nullptr, 0), ' ');
    polyhead_cuda_driver_statistics(text.data(), text.size());
    REQUIRE(text.find("mul.wide.u32 1 32\n") != std::string::npos);
    polyhead_cuda_driver_reset_statistics();
    REQUIRE(polyhead_cuda_driver_executed("") == 0);
}
