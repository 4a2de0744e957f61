// Chooses the generated kernels, and opens the device that they run on.
#include "kernels.h"

#include <cstdlib>

#include <minilm_ffn_down.h>
#include <minilm_ffn_up.h>
#include <minilm_layer.h>
#ifdef MINILM_BF16
#include <minilm_ffn_down_bf16.h>
#include <minilm_ffn_up_bf16.h>
#include <minilm_layer_bf16.h>
#endif
#ifdef MINILM_GPU
#include <minilm_ffn_down_gpu.h>
#include <minilm_ffn_up_gpu.h>
#include <minilm_layer_gpu.h>
#endif

namespace minilm {

Kernels cpu_kernels(polyhead::DType dtype) {
    if (dtype == polyhead::DType::bf16) {
#ifdef MINILM_BF16
        return {&minilm_layer_bf16, &minilm_ffn_up_bf16, &minilm_ffn_down_bf16, nullptr};
#else
        return {};
#endif
    }
    return {&minilm_layer, &minilm_ffn_up, &minilm_ffn_down, nullptr};
}

#ifdef MINILM_GPU

std::string gpu_kernels(const std::string &name, polyhead::Device *device, Kernels *kernels) {
    const size_t colon = name.find(':');
    const std::string api = name.substr(0, colon), index = colon == std::string::npos ? "0" : name.substr(colon + 1);
    if ((api != "cuda" && api != "opencl") || index.empty() || index.size() > 3 ||
        index.find_first_not_of("0123456789") != std::string::npos)
        return "--device " + name + ": expected cuda or opencl, with :INDEX if it is not the first device.";
    const polyhead::Status status =
        polyhead::Device::open(api == "cuda" ? polyhead::Api::cuda : polyhead::Api::opencl, std::atoi(index.c_str()), device);
    *kernels = {&minilm_layer_gpu, &minilm_ffn_up_gpu, &minilm_ffn_down_gpu, device};
    return status.message();
}

#else

std::string gpu_kernels(const std::string &name, polyhead::Device *, Kernels *) {
    return "--device " + name + ": this program was built without GPU kernels.";
}

#endif

std::string name_of(const polyhead::Device &device) {
    char text[200];
    polyhead_device_name(device.raw(), text, sizeof text);
    return text;
}

} // namespace minilm
