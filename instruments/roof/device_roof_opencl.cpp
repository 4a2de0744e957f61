// The roofs of an OpenCL device: a kernel of our own, run through a context and a queue that the device under test shares.
#include <cstdint>
#include <vector>

#include "device_roof.h"
#include "shared_library.h"

namespace roof {
namespace {

// What is used of OpenCL 1.2.
struct Cl {
    int (*platforms)(unsigned, void **, unsigned *) = nullptr;
    int (*devices)(void *, uint64_t, unsigned, void **, unsigned *) = nullptr;
    int (*device_info)(void *, unsigned, size_t, void *, size_t *) = nullptr;
    void *(*create_context)(const intptr_t *, unsigned, void *const *, void *, void *, int *) = nullptr;
    void *(*create_queue)(void *, void *, uint64_t, int *) = nullptr;
    void *(*create_program)(void *, unsigned, const char **, const size_t *, int *) = nullptr;
    int (*build)(void *, unsigned, void *const *, const char *, void *, void *) = nullptr;
    void *(*create_kernel)(void *, const char *, int *) = nullptr;
    void *(*create_buffer)(void *, uint64_t, size_t, void *, int *) = nullptr;
    int (*set_argument)(void *, unsigned, size_t, const void *) = nullptr;
    int (*launch)(void *, void *, unsigned, const size_t *, const size_t *, const size_t *, unsigned, void *, void *) = nullptr;
    int (*copy)(void *, void *, void *, size_t, size_t, size_t, unsigned, void *, void *) = nullptr;
    int (*finish)(void *) = nullptr;
    int (*release_memory)(void *) = nullptr, (*release_kernel)(void *) = nullptr, (*release_program)(void *) = nullptr;
    int (*release_queue)(void *) = nullptr, (*release_context)(void *) = nullptr;

    bool open() {
        SharedLibrary library("libOpenCL.so.1");
        library.get(platforms, "clGetPlatformIDs");
        library.get(devices, "clGetDeviceIDs");
        library.get(device_info, "clGetDeviceInfo");
        library.get(create_context, "clCreateContext");
        library.get(create_queue, "clCreateCommandQueue");
        library.get(create_program, "clCreateProgramWithSource");
        library.get(build, "clBuildProgram");
        library.get(create_kernel, "clCreateKernel");
        library.get(create_buffer, "clCreateBuffer");
        library.get(set_argument, "clSetKernelArg");
        library.get(launch, "clEnqueueNDRangeKernel");
        library.get(copy, "clEnqueueCopyBuffer");
        library.get(finish, "clFinish");
        library.get(release_memory, "clReleaseMemObject");
        library.get(release_kernel, "clReleaseKernel");
        library.get(release_program, "clReleaseProgram");
        library.get(release_queue, "clReleaseCommandQueue");
        library.get(release_context, "clReleaseContext");
        return library.found();
    }
};
constexpr uint64_t type_gpu = 1 << 2, type_all = 0xffffffff;
constexpr unsigned info_compute_units = 0x1002, info_vector_width = 0x100A;
constexpr size_t threads = 256, blocks_per_unit = 8;

// A device that prefers vectors is a CPU; GPUs prefer floats.
std::string fma_source(unsigned width) {
    const std::string type = width > 1 ? "float" + std::to_string(width) : "float";
    std::string text = "kernel void fma_roof(global " + type + " *out, int steps) {\n const " + type + " a = 0.999f, b = 1e-3f;\n";
    for (int i = 0; i < accumulators; i++)
        text += " " + type + " x" + std::to_string(i) + " = (" + type + ")(get_global_id(0) + " + std::to_string(i) + ");\n";
    text += " for (int n = 0; n < steps; n++) {\n";
    for (int j = 0; j < unroll; j++)
        for (int i = 0; i < accumulators; i++) {
            const std::string x = "x" + std::to_string(i);
            text.append("  ").append(x).append(" = fma(").append(x).append(", a, b);\n");
        }
    text += " }\n out[get_global_id(0)] = x0";
    for (int i = 1; i < accumulators; i++)
        text += " + x" + std::to_string(i);
    return text + ";\n}\n";
}

class OpenClRoof : public DeviceRoof {
public:
    ~OpenClRoof() override {
        for (void *memory : {out_, from_, to_})
            if (memory)
                (void)cl_.release_memory(memory);
        if (kernel_)
            (void)cl_.release_kernel(kernel_);
        if (program_)
            (void)cl_.release_program(program_);
        if (queue_)
            (void)cl_.release_queue(queue_);
        if (context_)
            (void)cl_.release_context(context_);
    }
    void *context() const override { return context_; }
    void *stream() const override { return queue_; }

    std::string open(int index) {
        if (!cl_.open())
            return "no OpenCL (libOpenCL.so.1) on this machine";
        const std::vector<void *> found = devices();
        if (index < 0 || static_cast<size_t>(index) >= found.size())
            return "no OpenCL device " + std::to_string(index) + " (there are " + std::to_string(found.size()) + ")";
        void *device = found[static_cast<size_t>(index)];
        unsigned units = 0;
        (void)cl_.device_info(device, info_compute_units, sizeof units, &units, nullptr);
        (void)cl_.device_info(device, info_vector_width, sizeof width_, &width_, nullptr);
        width_ = width_ == 2 || width_ == 4 || width_ == 8 || width_ == 16 ? width_ : 1;
        work_ = threads * blocks_per_unit * (units ? units : 1);
        int status = 0;
        context_ = cl_.create_context(nullptr, 1, &device, nullptr, nullptr, &status);
        queue_ = context_ ? cl_.create_queue(context_, device, 0, &status) : nullptr;
        if (!queue_)
            return "the OpenCL driver refuses a context or a queue (error " + std::to_string(status) + ")";
        const std::string source = fma_source(width_);
        const char *text = source.c_str();
        program_ = cl_.create_program(context_, 1, &text, nullptr, &status);
        if (!program_ || cl_.build(program_, 1, &device, "", nullptr, nullptr) != 0 ||
            !(kernel_ = cl_.create_kernel(program_, "fma_roof", &status)))
            return "the OpenCL driver refuses the bench's own kernel";
        out_ = cl_.create_buffer(context_, 1, work_ * width_ * sizeof(float), nullptr, &status);
        from_ = cl_.create_buffer(context_, 1, copy_bytes, nullptr, &status);
        to_ = cl_.create_buffer(context_, 1, copy_bytes, nullptr, &status);
        return out_ && from_ && to_ ? "" : "the OpenCL device has too little memory for the copy of the bench";
    }

protected:
    double run_fma(int steps) override {
        const int32_t count = steps;
        const size_t local = threads;
        if (cl_.set_argument(kernel_, 0, sizeof out_, &out_) != 0 || cl_.set_argument(kernel_, 1, sizeof count, &count) != 0 ||
            cl_.launch(queue_, kernel_, 1, nullptr, &work_, &local, 0, nullptr, nullptr) != 0 || cl_.finish(queue_) != 0)
            return 0;
        return 2.0 * accumulators * unroll * steps * static_cast<double>(work_) * width_;
    }
    bool run_copy() override { return cl_.copy(queue_, from_, to_, 0, 0, copy_bytes, 0, nullptr, nullptr) == 0 && cl_.finish(queue_) == 0; }

private:
    // All devices of all platforms, GPUs first.
    std::vector<void *> devices() const {
        unsigned count = 0;
        if (cl_.platforms(0, nullptr, &count) != 0)
            return {};
        std::vector<void *> platforms(count), gpus, others;
        (void)cl_.platforms(count, platforms.data(), nullptr);
        for (void *platform : platforms)
            for (const uint64_t type : {type_gpu, type_all & ~type_gpu}) {
                unsigned found = 0;
                if (cl_.devices(platform, type, 0, nullptr, &found) != 0)
                    continue;
                std::vector<void *> list(found);
                (void)cl_.devices(platform, type, found, list.data(), nullptr);
                std::vector<void *> &kind = type == type_gpu ? gpus : others;
                kind.insert(kind.end(), list.begin(), list.end());
            }
        gpus.insert(gpus.end(), others.begin(), others.end());
        return gpus;
    }

    Cl cl_;
    void *context_ = nullptr, *queue_ = nullptr, *program_ = nullptr, *kernel_ = nullptr;
    void *out_ = nullptr, *from_ = nullptr, *to_ = nullptr;
    size_t work_ = 0;
    unsigned width_ = 1;
};

} // namespace

std::unique_ptr<DeviceRoof> opencl_roof(int index, std::string *error) {
    auto roof = std::make_unique<OpenClRoof>();
    *error = roof->open(index);
    if (!error->empty())
        return nullptr;
    return roof;
}

} // namespace roof
