// The generated kernels that the encoder runs, and on what: the CPU, or a device.
#ifndef EXAMPLES_010_MINILM_KERNELS_H
#define EXAMPLES_010_MINILM_KERNELS_H

#include <string>

#include <polyhead/polyhead.h>

namespace minilm {

struct Kernels {
    const polyhead::Kernel *attention = nullptr, *ffn_up = nullptr, *ffn_down = nullptr;
    const polyhead::Device *device = nullptr; // null: the CPU
};

// Those of f32 or bf16; without kernels where the program was built without them.
Kernels cpu_kernels(polyhead::DType dtype);

// Those for "cuda" or "opencl" (the first device) or "opencl:1" (another one), which is opened and must outlive what runs there.
// Returns "", or one sentence.
std::string gpu_kernels(const std::string &name, polyhead::Device *device, Kernels *kernels);

// "NVIDIA H200 (cuda 9.0)"
std::string name_of(const polyhead::Device &device);

} // namespace minilm
#endif
