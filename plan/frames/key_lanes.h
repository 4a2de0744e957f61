// Numbers of the frame "key lanes" that follow from problem and tiling.
#pragma once

#include "../problem.h"
#include "../tiling.h"

namespace polyhead::gen {

// Columns of all gradients, in whole register tiles.
int gradient_width(const Problem &problem, const Tiling &tiling);
// Query, key, value and grad_out are read from copies: floats, in rows of that width. Otherwise as they lie.
bool stages_gradient_rows(const Problem &problem, const Tiling &tiling);

} // namespace polyhead::gen
