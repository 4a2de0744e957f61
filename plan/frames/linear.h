// What the linear layers of a problem need of it and of the machine.
#pragma once

#include <string>

#include "../../machines/machine.h"
#include "../problem.h"

namespace polyhead::gen {

// Why warps cannot multiply the rows and weights of the problem as they lie in memory, or empty.
std::string products_refusal(const Problem &problem, const Machine &machine);

} // namespace polyhead::gen
