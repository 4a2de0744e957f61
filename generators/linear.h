// The linear layer: out = rows * weight^T + bias, over a weight packed once in panels of POLYHEAD_WEIGHT_PANEL columns.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "../plan/tiling.h"
#include "linear_warps.h"
#include "products.h"
#include "storage.h"
#include <Halide.h>
#include <polyhead/c_api.h>

namespace polyhead::gen {

// A weight and its bias as they are packed.
struct LinearWeight {
    Storage storage;
    int pair = 1;                      // inputs whose entries of a column lie side by side
    bool wide = false;                 // such neighbours are loaded as one word
    Halide::ExternFuncArgument tensor; // what tiles read
    std::function<Halide::Expr(Halide::Expr column, Halide::Expr k, Halide::Expr panel)> stored;
    std::function<Halide::Expr(Halide::Expr column)> bias; // empty: none
};

// What the layer reads. The reduction runs over `outer` blocks of `inner` inputs, each block summed on its own: rounding errors grow
// with the root of the block, not of the whole width, and a [.., H, d] input keeps an affine index.
struct LinearInputs {
    Storage storage; // of rows
    std::function<Halide::Expr(Halide::Expr k_inner, Halide::Expr k_outer, Halide::Expr m, Halide::Expr b)> stored_rows;
    LinearWeight weight;
    const Product *product = nullptr;  // of neighbouring inputs of rows and weight as they are stored; null: they become floats
    const Product *tiles = nullptr;    // not null: of tiles, which read all of `tensor`
    std::optional<WarpBlocking> warps; // where warps multiply
    Halide::ExternFuncArgument tensor; // rows (k, [block,] m [, b]) as they lie in memory
    int inner, outer;
    int panels;
    Halide::Expr num_rows;
};

struct LinearStages {
    Halide::Var column{"column"}, panel{"panel"}, m{"m"}, b{"b"}, block{"block"};
    Halide::RDom k, blocks;
    int inner; // inputs of a block
    int panels;
    bool widens_pairs; // words of two weights become floats: twice as many of them are in registers
    Halide::Expr num_rows;
    std::optional<LinearWarpsStages> warps; // where warps multiply: then there are no others
    Halide::Func products;  // (column in panel, panel, m, b): all that is summed, where tiles make it; then there are no block sums
    Halide::Func block_sum; // (column in panel, panel, m, b, block), in registers
    Halide::Func acc;       // (column in panel, panel, m, b)
    // Every Func, producers first.
    std::vector<Halide::Func> funcs() const;

    // Column n of row m.
    Halide::Expr out(const Halide::Expr &n, const Halide::Expr &m, const Halide::Expr &b) const;

    // Writes `columns` columns of out in the coordinates of threads (GPU), so that each thread has its exact place.
    // `at` gives out's arguments for a column of a panel and a row, `store` what is kept of a value.
    using Arguments = std::function<std::vector<Halide::Expr>(Halide::Expr column, Halide::Expr panel, Halide::Expr m)>;
    void write(Halide::Func out, const std::vector<Halide::Var> &vars, const Halide::Expr &batch, int columns,
               const ThreadBlocking &blocking, const Arguments &at, const std::function<Halide::Expr(Halide::Expr)> &store);
    ThreadBlocking threads;
    Halide::RDom written; // (column, row) of a thread, thread over columns, panel, thread over rows, block of panels, block of rows
};

// The Func that takes the layer's result, and its Vars: column, row, and the batch where there is one.
struct LinearOut {
    Halide::Func func;
    Halide::Var n, m;
    std::vector<Halide::Var> outer; // at most one: the batch
    int columns;
};

inline int panels_of(int columns) {
    return (columns + POLYHEAD_WEIGHT_PANEL - 1) / POLYHEAD_WEIGHT_PANEL;
}

// Inputs of one block for a row of `width` inputs: its largest divisor up to `most` that is a multiple of pair, or all of it when none is
// worth the trouble.
int reduction_block(int width, int most, int pair);

LinearStages linear(const std::string &name, const LinearInputs &inputs);

} // namespace polyhead::gen
