// The outputs of one call: guarded memory full of canaries, and what a call wrote into it.
#ifndef POLYHEAD_INSTRUMENTS_OUTPUTS_H
#define POLYHEAD_INSTRUMENTS_OUTPUTS_H

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "call_tensors.h"
#include "layouts.h"

namespace polyhead::test {

class OutputTensors {
public:
    // An output of this operation, and its view in args.
    void add(polyhead_tensor polyhead_args::*which, Tensor tensor, polyhead_args *args);
    // The next gradient of a tensor of the expression; args has all of them.
    void add_expression_gradient(Tensor tensor, polyhead_args *args);
    // Its elements in the order of the shape, as floats; none if there is no such output.
    std::vector<float> read(polyhead_tensor polyhead_args::*which) const;
    // "out[5] was not written" for the first element that still holds the canary, or nothing.
    std::string unwritten() const;
    // Elements hold the canary again; what lies between and around them stays as it is.
    void refill();
    // True when every byte holds the canary.
    bool untouched() const;

private:
    template <class Visit> void for_each(Visit visit) const {
        std::for_each(tensors_.begin(), tensors_.end(), visit);
        std::for_each(expression_gradients_.begin(), expression_gradients_.end(), visit);
    }

    std::array<Tensor, output_tensors.size()> tensors_; // in that order
    std::vector<Tensor> expression_gradients_;
    std::vector<polyhead_tensor> expression_views_;
};

// The outputs of a call: outputs_of(args.op), then gradients of tensors of the expression.
size_t num_outputs(const polyhead_args &args);
const char *output_name(const polyhead_args &args, size_t i);
const polyhead_tensor &output_at(const polyhead_args &args, size_t i);

// The elements of a view, as floats.
std::vector<float> read_view(const polyhead_tensor &view);
// The number of the first of them that still holds the canary, or -1.
int64_t find_unwritten(const polyhead_tensor &view);
// The elements of every output of a call.
std::vector<std::vector<float>> read_outputs(const polyhead_args &args);

} // namespace polyhead::test
#endif
