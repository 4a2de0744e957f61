// A schedule by one of Halide's own autoschedulers, for comparison with ours.
#pragma once

#include <string>

#include <Halide.h>

namespace polyhead::gen {

// `words` is the autoscheduler's name and its parameters, "Adams2019 parallelism=2". The pipeline is unscheduled and has estimates.
// Throws what Halide throws.
void autoschedule(Halide::Pipeline pipeline, const Halide::Target &target, const std::string &words);

} // namespace polyhead::gen
