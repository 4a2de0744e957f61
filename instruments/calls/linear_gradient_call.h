// A call of linear_backward: tensors in guarded memory, and whether its results are right.
#ifndef POLYHEAD_INSTRUMENTS_LINEAR_GRADIENT_CALL_H
#define POLYHEAD_INSTRUMENTS_LINEAR_GRADIENT_CALL_H

#include <string>
#include <vector>

#include <polyhead/polyhead.h>

#include "layouts.h"
#include "outputs.h"

namespace polyhead::test {

struct LinearGradientShape {
    int64_t rows = 1;
    bool padded = false; // there are gaps behind rows
    Place place = Place::inside;
    uint64_t seed = 1;
};

// Inputs are read-only memory; outputs are filled with the canary.
class LinearGradientCall {
public:
    LinearGradientCall(const Problem &problem, const LinearGradientShape &shape);
    const polyhead_args &args() const { return args_; }
    polyhead_args &args() { return args_; }
    // The same with f32 tensors of the same values, for the reference.
    const polyhead_args &reference_args() const { return reference_args_; }
    std::string unwritten() const { return outputs_.unwritten(); }
    // True when nothing but the elements of the outputs was written. Destroys them.
    bool gaps_untouched() {
        outputs_.refill();
        return outputs_.untouched();
    }
    bool outputs_untouched() const { return outputs_.untouched(); }

private:
    void add_input(polyhead_tensor polyhead_args::*which, const std::vector<int64_t> &shape, int32_t dtype);
    void add_output(polyhead_tensor polyhead_args::*which, const std::vector<int64_t> &shape, int32_t dtype);
    std::vector<int64_t> strides(const std::vector<int64_t> &shape) const;

    LinearGradientShape shape_;
    Random random_;
    polyhead_args args_{}, reference_args_{};
    std::vector<Tensor> inputs_;
    OutputTensors outputs_;
};

// Runs the kernel and compares its results with the float64 reference: an empty text, or what is wrong. worst: the largest error so far in
// terms of the tolerance.
std::string check_linear_gradients(const Kernel &kernel, const LinearGradientShape &shape, double *worst);
// The same bits for one thread, two, and in memory of the caller that ends at an unmapped page.
std::string check_threads_of_linear_gradients(const Kernel &kernel, const LinearGradientShape &shape);

} // namespace polyhead::test
#endif
