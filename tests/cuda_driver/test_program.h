// For tests of the driver: a context, a kernel made from a few lines of PTX, buffers on the device.
#ifndef POLYHEAD_TESTS_CUDA_DRIVER_TEST_PROGRAM_H
#define POLYHEAD_TESTS_CUDA_DRIVER_TEST_PROGRAM_H

#include "instruments/emulators/ptx/cuda_driver.h"
#include "support/catch.h"

#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

namespace polyhead::test {

// A driver with nothing in it, read from the environment that the test sets, and a current context.
class Fresh {
public:
    // Of the form "NAME=value", without POLYHEAD_CUDA_DRIVER_ before it.
    Fresh(std::initializer_list<const char *> environment = {}) {
        set("QUIET=1");
        for (const char *variable : environment) {
            set(variable);
        }
        polyhead_cuda_driver_restart();
        if (cuInit(0) == CUDA_SUCCESS) {
            cuCtxCreate_v2(&context, 0, 0);
        }
    }
    ~Fresh() {
        polyhead_cuda_driver_restart();
        for (const std::string &name : names_) {
            unsetenv(name.c_str());
        }
    }
    Fresh(const Fresh &) = delete;
    Fresh &operator=(const Fresh &) = delete;

    CUcontext context = nullptr;

private:
    void set(const std::string &variable) {
        const size_t equals = variable.find('=');
        names_.push_back("POLYHEAD_CUDA_DRIVER_" + variable.substr(0, equals));
        setenv(names_.back().c_str(), variable.c_str() + equals + 1, 1);
    }
    std::vector<std::string> names_;
};

template <class T> CUdeviceptr upload(const std::vector<T> &values) {
    CUdeviceptr address = 0;
    REQUIRE(cuMemAlloc_v2(&address, values.size() * sizeof(T)) == CUDA_SUCCESS);
    REQUIRE(cuMemcpyHtoD_v2(address, values.data(), values.size() * sizeof(T)) == CUDA_SUCCESS);
    return address;
}
template <class T> std::vector<T> download(CUdeviceptr address, size_t count) {
    std::vector<T> values(count);
    REQUIRE(cuMemcpyDtoH_v2(values.data(), address, count * sizeof(T)) == CUDA_SUCCESS);
    return values;
}

// Registers %p0-9, %h0-9 (16 bits), %r0-49 (32), %d0-29 (64). %d0, %d1 hold the two buffers, %r0 the thread in its block.
inline std::string module_of(const std::string &body, const std::string &target = "sm_80", const std::string &before = "",
                             const std::string &version = "7.0") {
    return ".version " + version + "\n.target " + target + "\n.address_size 64\n" + before +
           ".visible .entry kernel(\n .param .u64 .ptr .align 1 kernel_param_0,\n .param .u64 kernel_param_1\n)\n{\n"
           ".reg .pred %p<10>;\n.reg .b16 %h<10>;\n.reg .b32 %r<50>;\n.reg .b64 %d<30>;\n"
           "ld.param.b64 %d0, [kernel_param_0];\ncvta.to.global.u64 %d0, %d0;\nld.param.b64 %d1, [kernel_param_1];\nmov.u32 %r0, "
           "%tid.x;\n" +
           body + "\n}\n";
}

struct Grid {
    unsigned grid[3] = {1, 1, 1}, block[3] = {32, 1, 1}, shared = 0;
};

inline CUresult launch(CUmodule module, CUdeviceptr first, CUdeviceptr second, const Grid &shape = {}, CUstream stream = nullptr) {
    CUfunction function = nullptr;
    REQUIRE(cuModuleGetFunction(&function, module, "kernel") == CUDA_SUCCESS);
    void *parameters[] = {&first, &second};
    return cuLaunchKernel(function, shape.grid[0], shape.grid[1], shape.grid[2], shape.block[0], shape.block[1], shape.block[2],
                          shape.shared, stream, parameters, nullptr);
}

inline CUresult run(const std::string &body, CUdeviceptr first, CUdeviceptr second, const Grid &shape = {},
                    const std::string &before = "") {
    CUmodule module = nullptr;
    REQUIRE(cuModuleLoadData(&module, module_of(body, "sm_80", before).c_str()) == CUDA_SUCCESS);
    const CUresult result = launch(module, first, second, shape);
    INFO(polyhead_cuda_driver_error());
    cuModuleUnload(module);
    return result;
}

// One block of a program with so many bytes of shared memory on request, and what is then in the first buffer, where all went well. The
// first result that is not success.
template <class T>
CUresult run_block(const std::string &ptx, unsigned threads, unsigned shared, CUdeviceptr first, CUdeviceptr second, size_t count,
                   std::vector<T> *out) {
    CUmodule module = nullptr;
    const CUresult loaded = cuModuleLoadData(&module, ptx.c_str());
    if (loaded != CUDA_SUCCESS) {
        return loaded;
    }
    constexpr int shared_on_request = 8; // the attribute
    CUfunction function = nullptr;
    REQUIRE(cuModuleGetFunction(&function, module, "kernel") == CUDA_SUCCESS);
    REQUIRE(cuFuncSetAttribute(function, shared_on_request, static_cast<int>(shared)) == CUDA_SUCCESS);
    Grid shape;
    shape.block[0] = threads;
    shape.shared = shared;
    const CUresult result = launch(module, first, second, shape);
    if (out && result == CUDA_SUCCESS) {
        *out = download<T>(first, count);
    }
    cuModuleUnload(module);
    return result;
}

inline bool error_says(const char *words) {
    const bool found = std::strstr(polyhead_cuda_driver_error(), words) != nullptr;
    UNSCOPED_INFO("the driver says: " << polyhead_cuda_driver_error());
    return found;
}

// %d2 becomes the address of this thread's word in the first buffer, %d3 in the second.
inline const char *own_words() {
    return "mul.wide.u32 %d4, %r0, 4;\nadd.s64 %d2, %d0, %d4;\nadd.s64 %d3, %d1, %d4;\n";
}

} // namespace polyhead::test
#endif
