// Weights of layers: as nn.Linear stores them, and packed. Included by polyhead.h.
#ifndef POLYHEAD_WEIGHTS_H
#define POLYHEAD_WEIGHTS_H

#include <cstddef>

#include <polyhead/c_api.h>
#include <polyhead/tensor.h>

namespace polyhead {

// Weights as nn.Linear stores them ([out_features, in_features]); see polyhead_weight_tensors.
struct WeightTensors : polyhead_weight_tensors {
    WeightTensors() noexcept : polyhead_weight_tensors(polyhead_weight_tensors_of()) {}
    // Packed in_proj_weight [H*d + H_kv*d + H_kv*d_v, D] (rows: query, key, value) with its bias, and the output projection.
    WeightTensors(const TensorView &in_proj_, const TensorView &in_bias_, const TensorView &out_proj_, const TensorView &out_bias_) noexcept
        : WeightTensors() {
        in_proj = in_proj_;
        in_bias = in_bias_;
        out_proj = out_proj_;
        out_bias = out_bias_;
    }
};

// Packed weights that own their memory, on the host or on a device. Movable. Filled by Kernel::pack and Device::put.
class Weights {
public:
    Weights() noexcept : raw_{} {}
    ~Weights();
    Weights(Weights &&other) noexcept;
    Weights &operator=(Weights &&other) noexcept;
    Weights(const Weights &) = delete;
    Weights &operator=(const Weights &) = delete;
    const polyhead_weights *raw() const noexcept { return &raw_; }
    size_t bytes() const noexcept { return raw_.bytes; }

private:
    friend class Kernel;
    friend class Device;
    polyhead_weights raw_;
};

} // namespace polyhead
#endif
