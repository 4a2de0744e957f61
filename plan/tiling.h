// Tiling: every number of frame and schedule, each a generator parameter and a column of the tuning record. 0 = the default.
#pragma once

#include <optional>
#include <string>

#include "../contract/problem.h"
#include "../machines/machine.h"
#include "problem.h"
#include "tiling_knobs.h"

namespace polyhead::gen {

struct Tiling {
#define POLYHEAD_FIELD(name, meaning, ...) int name = 0;
    POLYHEAD_TILING_KNOBS(POLYHEAD_FIELD)
#undef POLYHEAD_FIELD

    // "q_tile=32 kv_tile=128 ...", knobs that are not 0.
    std::string to_string() const;
    // Sets one knob; returns a sentence when there is no such knob or the value is not a whole number >= 0.
    std::string set(const std::string &knob, const std::string &value);
    // Sets all of "knob=value knob=value ...".
    std::string set_all(const std::string &text);
};

// Gives a knob that is 0 its default.
inline void fill(int &knob, int value) {
    if (knob == 0) {
        knob = value;
    }
}

// Scores and probs x values of query lanes are products of tiles. Rotated query and key are floats, which they do not multiply.
inline bool multiplies_by_tiles(const Problem &problem, const Tiling &tiling) {
    return tiling.amx != 0 && tiling.pair == 2 && contract::attends(problem) && problem.rope == POLYHEAD_NO_ROPE;
}

// Blocking numbers of a linear layer on a GPU.
struct ThreadBlocking {
    int columns, rows; // of a thread; columns divides a panel
    int panels;        // of a block
    int row_threads;   // of a block
};

// What the warps of a GPU multiply the elements of a problem by, floats in parts where it allows them; or null.
inline const Product *product_for(const Problem &problem, const Machine &machine) {
    return machine.warp_product(problem.dtype, problem.precision == POLYHEAD_TF32X3);
}

// How a GPU's threads share a linear layer; nothing on a CPU.
std::optional<ThreadBlocking> thread_blocking(const Tiling &tiling, const Machine &machine);

// The same where warps multiply rows and weights as they are stored: matrices of 16 rows and of 8 columns.
struct WarpBlocking {
    const Product *product;
    int lanes;                   // of a warp
    int row_tiles, column_tiles; // of a warp
    int row_warps, column_warps; // of a block
    int depth, chunks;           // inputs of a chunk; chunks in shared memory: all but one are under way

    int rows() const { return row_warps * row_tiles * product->m; }
    int columns() const { return column_warps * column_tiles * product->n; }
    int threads() const { return row_warps * column_warps * lanes; }
    // Of a chunk.
    int row_bytes() const { return depth * product->element_bytes(); }
    int rows_bytes() const { return rows() * row_bytes(); }
    int bytes() const { return rows_bytes() + columns() * row_bytes(); }

    static constexpr int copy = 16; // bytes
};
// Nothing where threads multiply.
std::optional<WarpBlocking> warp_blocking(const Tiling &tiling, const Problem &problem, const Machine &machine);

} // namespace polyhead::gen
