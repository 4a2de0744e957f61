// gpu_error NAME: the largest error of one GPU kernel on POLYHEAD_TEST_DEVICE, as part of the tolerance. NAME is a kernel of the table;
// with generate flags after it the kernel is compiled in process. Prints one line: the number, or a sentence.
#include <cstdio>

#include "instruments/calls/compiled_kernel.h"
#include "kernel_table.h"
#include "request.h"

#include "support/check.h"
#include "support/device.h"
#include "support/shapes.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

constexpr int shapes = 5;

std::string first_line(const std::string &text) {
    return text.substr(0, text.find('\n'));
}

// The largest error / tolerance over a few awkward shapes of the kernel's variants for this device.
std::string worst_error(const Kernel &kernel, const TestDevice &device, double *worst) {
    const std::vector<polyhead_kernel> variants = forced_variants(kernel, device);
    if (variants.empty()) {
        return "no variant for this device";
    }
    for (const polyhead_kernel &variant : variants) {
        const KernelSubject subject(variant, 1, false, device.raw());
        if (subject.pack_status().code != POLYHEAD_OK) {
            return subject.pack_status().message;
        }
        for (const Shape &shape : awkward_shapes(kernel.problem, 1, shapes)) {
            if (!serves(variant, shape.seq_len_q)) {
                continue;
            }
            const std::string error = check_answer(subject.subject(), fitting(shape, variant), worst);
            if (!error.empty()) {
                return first_line(error);
            }
        }
    }
    return "";
}

const Kernel *find(const std::string &name) {
    for (const Kernel *kernel : kernel_table) {
        if (kernel->name == name) {
            return kernel;
        }
    }
    return nullptr;
}

std::string serve(int argc, char **argv, double *worst) {
    const TestDevice &device = TestDevice::get();
    if (device.raw() == nullptr) {
        return device.error();
    }
    if (argc == 2) {
        const Kernel *kernel = find(argv[1]);
        return kernel != nullptr ? worst_error(*kernel, device, worst) : "no kernel " + std::string(argv[1]) + " in the table";
    }
    tools::Request request;
    std::string help;
    const std::string refused = tools::parse_request(argc, argv, &request, &help);
    if (!refused.empty()) {
        return refused;
    }
    const CompiledKernel compiled(request.problem, {request.targets[0], request.tiling, request.name});
    return compiled.error().empty() ? worst_error(compiled.kernel(), device, worst) : compiled.error();
}

} // namespace

int main(int argc, char **argv) {
    double worst = 0;
    const std::string error = argc < 2 ? "usage: gpu_error NAME [generate flags]" : serve(argc, argv, &worst);
    if (error.empty()) {
        std::printf("%.3f\n", worst);
    } else {
        std::printf("%s\n", error.c_str());
    }
    return error.empty() ? 0 : 1;
}
