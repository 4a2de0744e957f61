// Numbers of the frame "key lanes" that follow from problem and tiling.
#pragma once

#include "../problem.h"
#include "../tiling.h"

namespace polyhead::gen {

// Columns of all gradients, in whole register tiles.
int gradient_width(const Problem &problem, const Tiling &tiling);
// Words of a row as it is transposed, in whole vectors of lanes.
int gradient_words(const Problem &problem, const Tiling &tiling, int lanes);
// Of a row of so many entries, those that are copied: none where they lie so in the tensor.
int copied_gradient_words(const Problem &problem, const Tiling &tiling, int lanes, int entries);
// Query, key, value and grad_out are read from copies: floats, in rows of that width. Otherwise as they lie.
bool stages_gradient_rows(const Problem &problem, const Tiling &tiling);

} // namespace polyhead::gen
