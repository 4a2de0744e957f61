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

// Blocks of equal size in whole units, of about `most` at most: 300 rows of at most 256 are 152 + 148, not 256 + 44.
template <class Count> Count in_equal_blocks(const Count &count, int most, int unit) {
    const Count blocks = (count + most - 1) / most;
    return (count + blocks * unit - 1) / (blocks * unit) * unit;
}

} // namespace polyhead::gen
