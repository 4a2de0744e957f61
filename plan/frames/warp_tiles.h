// How the tiles of a block of the frame "warp tiles" lie in shared memory: rows of elements as they are stored, in panels
// of columns.
#pragma once

#include <string>

#include "../../contract/dtypes.h"
#include "../../machines/device_calls.h"
#include "../../machines/machine.h"
#include "../problem.h"
#include "../tiling.h"

namespace polyhead::gen {

constexpr int warp_tiles_row_bytes = 128; // of a row of a panel
constexpr int warp_tiles_copy = 16;       // bytes of one copy
constexpr int warp_tiles_eight = 8;       // copies of a row of a panel; rows in which they are exchanged; columns of a product
constexpr int warp_tiles_page = 16;       // rows of the smallest page: a chunk has as many at least

inline int warp_tiles_copied_elements(int dtype) {
    return warp_tiles_copy / contract::dtype_bytes(dtype);
}

// Frame::few_blocks_of() for blocks of so many rows. Two small blocks of one multiprocessor take as long as a usual one, so they are faster
// where each has its own. A causal call ends with its longest block: there small ones are faster as soon as some multiprocessor has none.
int warp_tiles_few_blocks(const Problem &problem, int usual, int small);

// Why tiles cannot be copied with these numbers, or empty.
std::string copies_refusal(const Problem &problem, const Tiling &tiling);

// Barriers in memory of the frame "group tiles": chunks that are there, chunks that nobody reads any more.
constexpr int group_tiles_barriers = 2;

// Bytes of the queries of a block, and of the keys and the values of a chunk; chunks that there is room for; barriers behind them.
struct WarpTilesBytes {
    int query, key, value, chunks, barriers;
    int tiles() const { return query + chunks * (key + value); }
    int all() const { return tiles() + barriers * memory_barrier_bytes; }
};
WarpTilesBytes warp_tiles_bytes(int rows, int keys, int head_dim, int head_dim_v, int chunks, int element_bytes, int barriers = 0);

} // namespace polyhead::gen
