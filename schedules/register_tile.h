// The register tile of a linear layer on a CPU.
#pragma once

#include "../plan/tiling.h"

namespace polyhead::gen {

// The widest count of panels that divides those of a row, and the rows that then fit.
struct RegisterTile {
    int panels, rows;
};

// panels: of a row. widens_pairs: words of two weights become floats in registers.
RegisterTile register_tile(int panels, bool widens_pairs, const Tiling &tiling, const Machine &machine);

} // namespace polyhead::gen
