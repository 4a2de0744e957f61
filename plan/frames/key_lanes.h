// Numbers of the frame "key lanes" that follow from problem and tiling.
#pragma once

#include "../language/reads.h"
#include "../problem.h"
#include "../tiling.h"

namespace polyhead::gen {

// Columns of all gradients, in whole register tiles.
int gradient_width(const Problem &problem, const Tiling &tiling);
// Words of a row as it is transposed, in whole vectors of lanes.
int gradient_words(const Problem &problem, const Tiling &tiling, int lanes);
// Of a row of so many entries, those that are copied: none where they lie so in the tensor.
int copied_gradient_words(const Problem &problem, const Tiling &tiling, int lanes, int entries);
// Rows whose sums of grad_out * out are made side by side, in squares.
int rows_of_delta(const Problem &problem, int lanes);
// Query, key, value and grad_out are read from copies: floats, in rows of that width. Otherwise as they lie.
bool stages_gradient_rows(const Problem &problem, const Tiling &tiling);
// A read of a tensor whose gradient is wanted: elements of a line of sums to which a tile adds, and rows of that width for them, in whole
// register tiles wherever the line of the tile begins in that of the head.
struct TableTile {
    int elements, rows;
};
TableTile table_tile(language::Follows follows, int elements_of_pairs, int q_tile, int kv_tile, int width, int grad_rows);

} // namespace polyhead::gen
