// Random weights of a layer or a linear problem.
#ifndef POLYHEAD_INSTRUMENTS_WEIGHTS_H
#define POLYHEAD_INSTRUMENTS_WEIGHTS_H

#include <cstdint>
#include <vector>

#include <polyhead/polyhead.h>

#include "layouts.h"

namespace polyhead::test {

// Weights as nn.Linear has them, in the storage type of the problem or in f32; packed in_proj or separate tensors.
class LayerWeights {
public:
    LayerWeights(const Problem &problem, uint64_t seed, bool separate = false);
    const polyhead_weight_tensors &tensors() const { return tensors_; }
    // The values that packing keeps, in f32, for the reference.
    const polyhead_weight_tensors &reference() const { return reference_; }

private:
    void add(polyhead_tensor polyhead_weight_tensors::*place, const std::vector<int64_t> &shape, float scale, Random &random);
    int32_t dtype_, packed_;
    polyhead_weight_tensors tensors_ = polyhead_weight_tensors_of(), reference_ = polyhead_weight_tensors_of();
    std::vector<Tensor> storage_;
};

} // namespace polyhead::test
#endif
