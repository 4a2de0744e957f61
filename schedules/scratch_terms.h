// The tensors that a kernel keeps for a whole call, as terms of its scratch memory.
#pragma once

#include <string>

#include "../generators/problem.h"
#include "machine.h"
#include "tiling.h"

namespace polyhead::gen {

// Never less than what the schedules allocate outside of tasks; what a thread takes (per_thread) is left 0.
polyhead_scratch scratch_terms(const std::string &frame, const Problem &problem, const Tiling &tiling, const Machine &machine);

} // namespace polyhead::gen
