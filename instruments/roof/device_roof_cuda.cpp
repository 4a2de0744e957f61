// The roofs of a CUDA device: PTX of our own, run through the driver in the primary context.
#include <cstdint>

#include "device_roof.h"
#include "shared_library.h"

namespace roof {
namespace {

// What is used of the driver's interface.
using Pointer = unsigned long long;
struct Driver {
    int (*init)(unsigned) = nullptr;
    int (*device_get)(int *, int) = nullptr;
    int (*attribute)(int *, int, int) = nullptr;
    int (*retain)(void **, int) = nullptr;
    int (*release)(int) = nullptr;
    int (*set_current)(void *) = nullptr;
    int (*load)(void **, const void *) = nullptr;
    int (*unload)(void *) = nullptr;
    int (*function)(void **, void *, const char *) = nullptr;
    int (*allocate)(Pointer *, size_t) = nullptr;
    int (*free)(Pointer) = nullptr;
    int (*copy)(Pointer, Pointer, size_t) = nullptr;
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **) = nullptr;
    int (*synchronize)() = nullptr;

    bool open() {
        SharedLibrary library("libcuda.so.1");
        library.get(init, "cuInit");
        library.get(device_get, "cuDeviceGet");
        library.get(attribute, "cuDeviceGetAttribute");
        library.get(retain, "cuDevicePrimaryCtxRetain");
        library.get(release, "cuDevicePrimaryCtxRelease_v2");
        library.get(set_current, "cuCtxSetCurrent");
        library.get(load, "cuModuleLoadData");
        library.get(unload, "cuModuleUnload");
        library.get(function, "cuModuleGetFunction");
        library.get(allocate, "cuMemAlloc_v2");
        library.get(free, "cuMemFree_v2");
        library.get(copy, "cuMemcpyDtoD_v2");
        library.get(launch, "cuLaunchKernel");
        library.get(synchronize, "cuCtxSynchronize");
        return library.found();
    }
};
constexpr int multiprocessors = 16; // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
constexpr unsigned threads = 256, blocks_per_multiprocessor = 8;

// x = x * a + b in every accumulator; the sum is stored, so that nothing is left out.
std::string fma_ptx() {
    std::string text = ".version 7.0\n.target sm_80\n.address_size 64\n"
                       ".visible .entry fma_roof(.param .u64 out, .param .u32 steps)\n{\n"
                       ".reg .pred %p1;\n.reg .b32 %r<9>;\n.reg .b64 %d<9>;\n.reg .f32 %a, %b, %x<16>;\n"
                       "ld.param.u64 %d1, [out];\nld.param.u32 %r1, [steps];\n"
                       "mov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\nmov.u32 %r4, %tid.x;\nmad.lo.u32 %r5, %r2, %r3, %r4;\n"
                       "mul.wide.u32 %d2, %r5, 4;\nadd.u64 %d3, %d1, %d2;\nmov.b32 %a, 0f3F7FBE77;\nmov.b32 %b, 0f3A83126F;\n";
    for (int i = 0; i < accumulators; i++)
        text += "cvt.rn.f32.u32 %x" + std::to_string(i) + ", %r5;\n";
    text += "loop:\n";
    for (int j = 0; j < unroll; j++)
        for (int i = 0; i < accumulators; i++) {
            const std::string x = "%x" + std::to_string(i);
            text.append("fma.rn.f32 ").append(x).append(", ").append(x).append(", %a, %b;\n");
        }
    text += "sub.u32 %r1, %r1, 1;\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 bra loop;\n";
    for (int i = 1; i < accumulators; i++)
        text += "add.rn.f32 %x0, %x0, %x" + std::to_string(i) + ";\n";
    return text + "st.global.f32 [%d3], %x0;\nret;\n}\n";
}

class CudaRoof : public DeviceRoof {
public:
    ~CudaRoof() override {
        if (!context_)
            return;
        (void)driver_.set_current(context_);
        if (module_)
            (void)driver_.unload(module_);
        for (const Pointer memory : {out_, from_, to_})
            if (memory)
                (void)driver_.free(memory);
        (void)driver_.release(device_);
    }
    void *context() const override { return nullptr; } // polyhead takes the primary context of the same device
    void *stream() const override { return nullptr; }

    std::string open(int index) {
        if (!driver_.open() || driver_.init(0) != 0)
            return "no CUDA driver (libcuda.so.1) on this machine";
        if (driver_.device_get(&device_, index) != 0)
            return "no CUDA device " + std::to_string(index);
        int count = 0;
        if (driver_.attribute(&count, multiprocessors, device_) != 0 || driver_.retain(&context_, device_) != 0 ||
            driver_.set_current(context_) != 0)
            return "the CUDA driver refuses a context";
        blocks_ = static_cast<unsigned>(count) * blocks_per_multiprocessor;
        if (driver_.load(&module_, fma_ptx().c_str()) != 0 || driver_.function(&fma_, module_, "fma_roof") != 0)
            return "the CUDA driver refuses the bench's own PTX (a device of capability 8.0 or more is needed)";
        if (driver_.allocate(&out_, size_t(4) * blocks_ * threads) != 0 || driver_.allocate(&from_, copy_bytes) != 0 ||
            driver_.allocate(&to_, copy_bytes) != 0)
            return "the CUDA device has too little memory for the copy of the bench";
        return "";
    }

protected:
    double run_fma(int steps) override {
        (void)driver_.set_current(context_);
        uint32_t count = static_cast<uint32_t>(steps);
        void *arguments[] = {&out_, &count};
        if (driver_.launch(fma_, blocks_, 1, 1, threads, 1, 1, 0, nullptr, arguments, nullptr) != 0 || driver_.synchronize() != 0)
            return 0;
        return 2.0 * accumulators * unroll * steps * threads * blocks_;
    }
    bool run_copy() override {
        (void)driver_.set_current(context_);
        return driver_.copy(to_, from_, copy_bytes) == 0 && driver_.synchronize() == 0;
    }

private:
    Driver driver_;
    int device_ = 0;
    void *context_ = nullptr, *module_ = nullptr, *fma_ = nullptr;
    Pointer out_ = 0, from_ = 0, to_ = 0;
    unsigned blocks_ = 0;
};

} // namespace

std::unique_ptr<DeviceRoof> cuda_roof(int index, std::string *error) {
    auto roof = std::make_unique<CudaRoof>();
    *error = roof->open(index);
    if (!error->empty())
        return nullptr;
    return roof;
}

} // namespace roof
