// A kernel as a generator of Halide.
#pragma once

#include <Halide.h>

#include "../plan/plan.h"

namespace polyhead::gen {

// The pipeline of a planned variant of a complete problem, whose expression it copies.
Halide::Internal::AbstractGeneratorPtr kernel_generator(const Problem &problem, const VariantPlan &plan, const Halide::Target &target);

} // namespace polyhead::gen
