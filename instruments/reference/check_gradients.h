// Gradients of one call against the float64 reference.
#ifndef POLYHEAD_INSTRUMENTS_CHECK_GRADIENTS_H
#define POLYHEAD_INSTRUMENTS_CHECK_GRADIENTS_H

#include <array>
#include <string>
#include <vector>

#include "../calls/inputs.h"

namespace polyhead::test {

// grad_query, grad_key, grad_value, and grad_score_bias, grad_alibi_slopes, grad_sinks, grad_gate and those of norms (weight and bias of
// query, then of key) where the call has them.
using GradientOutputs = std::array<std::vector<float>, 11>;

// Those of tensors of the expression.
using TableOutputs = std::vector<std::vector<float>>;

// What is wrong with the outputs of a call of sdpa_backward, or nothing. worst, when given, is raised to the largest error / tolerance.
std::string compare_gradients(const Problem &problem, const Inputs &inputs, const GradientOutputs &outputs, const TableOutputs &tables,
                              double max_flops, double *worst);

} // namespace polyhead::test
#endif
