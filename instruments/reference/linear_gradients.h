// Gradients of a linear layer, evaluated plainly: in double the truth of every test, in float the "plain formula" of the tolerance.
#ifndef POLYHEAD_INSTRUMENTS_LINEAR_GRADIENTS_H
#define POLYHEAD_INSTRUMENTS_LINEAR_GRADIENTS_H

#include <vector>

#include <polyhead/polyhead.h>

namespace polyhead::test {

// Dense, in the order of their shapes.
template <class Real> struct LinearGradients {
    std::vector<Real> input, weight, bias; // [M,K], [N,K], [N]
};

// Reads input, weight and grad_out as polyhead_run does, in f32 whatever the problem stores. Gradients of input and weight are rounded to
// these types.
template <class Real>
LinearGradients<Real> evaluate_linear_gradients(const polyhead_args &args, int32_t rows_dtype = POLYHEAD_F32,
                                                int32_t weight_dtype = POLYHEAD_F32);

extern template LinearGradients<double> evaluate_linear_gradients(const polyhead_args &, int32_t, int32_t);
extern template LinearGradients<float> evaluate_linear_gradients(const polyhead_args &, int32_t, int32_t);

} // namespace polyhead::test
#endif
