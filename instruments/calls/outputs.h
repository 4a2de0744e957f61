// The outputs of one call: guarded memory full of canaries, and what a call wrote into it.
#ifndef POLYHEAD_INSTRUMENTS_OUTPUTS_H
#define POLYHEAD_INSTRUMENTS_OUTPUTS_H

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
    // Its elements in the order of the shape, as floats; none if there is no such output.
    std::vector<float> read(polyhead_tensor polyhead_args::*which) const;
    // "out[5] was not written" for the first element that still holds the canary, or nothing.
    std::string unwritten() const;
    // Elements hold the canary again; what lies between and around them stays as it is.
    void refill();
    // True when every byte holds the canary.
    bool untouched() const;

private:
    std::array<Tensor, output_tensors.size()> tensors_; // in that order
};

// The elements of a view, as floats.
std::vector<float> read_view(const polyhead_tensor &view);
// The number of the first of them that still holds the canary, or -1.
int64_t find_unwritten(const polyhead_tensor &view);
// The elements of every output of a call, outputs_of(args.op).
std::vector<std::vector<float>> read_outputs(const polyhead_args &args);

} // namespace polyhead::test
#endif
