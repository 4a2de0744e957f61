// Random weights of a layer or a linear problem.
#ifndef POLYHEAD_TESTS_WEIGHTS_H
#define POLYHEAD_TESTS_WEIGHTS_H

#include <cstdint>
#include <vector>

#include <polyhead/polyhead.h>

#include "layouts.h"

namespace polyhead::test {

// Weights as nn.Linear has them; packed in_proj or separate tensors.
class LayerWeights {
public:
    LayerWeights(const Problem &problem, uint64_t seed, bool separate = false);
    const polyhead_weight_tensors &tensors() const { return tensors_; }

private:
    polyhead_tensor add(const std::vector<int64_t> &shape, float scale, Random &random);
    polyhead_weight_tensors tensors_{};
    std::vector<Tensor> storage_;
};

} // namespace polyhead::test
#endif
