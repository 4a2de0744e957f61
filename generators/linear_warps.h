// Linear layers by products that warps make together, in the coordinates of threads.
//
// A warp has tiles of 16 rows and of 8 columns, whose sums stay in registers that no Expr holds (device_calls.h). Chunks of inputs of the
// rows and of the weight of a block lie in shared memory as they are stored. A lane has of each tile of sums two rows, lane / 4 and 8
// more, and two columns.
#pragma once

#include <functional>

#include "../plan/tiling.h"
#include "thread_stage.h"
#include <Halide.h>

namespace polyhead::gen {

struct LinearInputs;

struct LinearWarpsStages {
    WarpBlocking blocking;
    int panels; // of the layer
    Halide::Expr num_rows;
    Halide::Var lane{"lane"}, w{"w"}, x{"x"}, y{"y"}, b{"b"}; // x: block of panels, y: of rows
    std::vector<ThreadStage> before, of_chunk, after;         // the loop over chunks
    Halide::Func acc;                                         // 0; its update is the loop
    Halide::RDom chunk;
    Halide::Func products, row_fragments, weight_fragments; // the last ones are loaded inside of the products
    Halide::RVar products_of_load, products_of_step;        // the loops in which they are
    // (column of two, tile of columns, row of two, tile of rows, lane, warp, block of panels, block of rows)
    Halide::RDom written;
    bool stores_pairs; // two columns at once

    std::vector<Halide::Func> funcs() const;

    // Writes `columns` columns of out, as LinearStages::write. bias: empty where there is none.
    using Arguments = std::function<std::vector<Halide::Expr>(Halide::Expr column, Halide::Expr panel, Halide::Expr m)>;
    void write(Halide::Func out, const std::vector<Halide::Var> &vars, const Halide::Expr &batch, int columns, const Arguments &at,
               const std::function<Halide::Expr(Halide::Expr)> &store);

    std::string name;
    std::function<Halide::Expr(Halide::Expr column)> bias;
    // Registers of floats and of words, by their numbers: sums, those of one product; fragments of rows, of the weight, floats that become
    // parts.
    struct Registers {
        int acc = 0, product = 0;
        int rows = 0, weight = 0, stored = 0;
    } registers;

private:
    Halide::Func end; // behind the loop: 0

    Halide::Func define_kept(const Halide::Expr &first_column, const std::function<Halide::Expr(Halide::Expr)> &store);
};

LinearWarpsStages linear_warps(const std::string &name, const LinearInputs &inputs, const WarpBlocking &blocking);

} // namespace polyhead::gen
