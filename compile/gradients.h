// The stages of a backward call: gradients of rows that attention reads, and the way back to the tensors of the call.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "../plan/tiling.h"
#include "schedule_kernel.h"

namespace polyhead::gen {

struct BackwardCall {
    Problem problem;
    Expression expression;
    Numerics numerics;
    Storage storage; // of the results
    Tiling tiling;
    int lanes;
    bool fused;                                     // a product and its sum are one instruction
    const Product *product;                         // of the type as it is stored, or null: floats are multiplied
    KeySource::Element query, key, value, grad_out; // as they are stored; value is null where it is part of key
    AttentionInputs in;                             // the tensors of the call, as floats
    std::map<std::string, Halide::Func> results;    // that the kernel has, by name
    // Lets attention read normalised and rotated rows, of a problem that has nothing to rotate then.
    std::function<void(Problem *, AttentionInputs *)> keep_rows;
    bool read_on = false; // gradients of query, key, value and gate are intermediates of a layer
};

void make_gradients(const BackwardCall &call, KernelStages *stages);

} // namespace polyhead::gen
