// CPU schedule of the linear layer.
#pragma once

#include "../generators/layer.h"
#include "machine.h"
#include "tiling.h"

namespace polyhead::gen {

// Result as rows of `columns` numbers.
void schedule_linear(LinearStages &stages, const LinearOut &out, const Tiling &tiling, const Machine &machine);
// Result as heads of whole panels.
void schedule_projection(HeadProjection &projection, const Tiling &tiling, const Machine &machine);

} // namespace polyhead::gen
