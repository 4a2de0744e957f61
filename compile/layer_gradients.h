// The stages of a layer's backward call: its linear layers, and between them the gradients of attention.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gradients.h"

namespace polyhead::gen {

struct LayerBackwardCall {
    using Element = std::function<Halide::Expr(const std::vector<Halide::Expr> &place)>;
    BackwardCall attention;                                  // of the heads that the forward call kept; results are those of the layer
    Storage weights;                                         // of their gradients
    std::function<Element(const std::string &name)> operand; // elements as floats, innermost dimension first
};

void make_layer_gradients(const LayerBackwardCall &call, KernelStages *stages);

} // namespace polyhead::gen
