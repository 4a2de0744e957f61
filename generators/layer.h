// The whole attention layer: projections, attention, output projection. Heads are split and merged by index, never by a copy.
#pragma once

#include <optional>

#include "formulas.h"
#include "linear.h"

namespace polyhead::gen {

// Input rows: entry k of row t of batch b as it is stored, their width, and how many there are.
struct LayerRows {
    Storage storage;
    std::function<Halide::Expr(Halide::Expr k, Halide::Expr t, Halide::Expr b)> stored;
    int width;
    Halide::Expr count;
    Halide::ExternFuncArgument tensor = {}; // what tiles read
};

// The rows of all batch rows as those of one, [B*T], so that a weight that is read serves all of them: where a batch row has few.
struct JoinedRows {
    Halide::Expr tokens, batch; // undefined: not joined
    bool joined() const { return tokens.defined(); }
    Halide::Expr count(const Halide::Expr &rows) const { return joined() ? tokens * batch : rows; }
    // Where row t of batch row b lies, and back.
    std::pair<Halide::Expr, Halide::Expr> place(const Halide::Expr &t, const Halide::Expr &b) const;
    std::pair<Halide::Expr, Halide::Expr> token(const Halide::Expr &row, const Halide::Expr &b) const;
};

// What is the same for all linear layers of a kernel.
struct LayerNumbers {
    int reduction_block;
    const Product *product, *tiles;        // as in LinearInputs
    std::optional<ThreadBlocking> threads; // with it heads are written in the coordinates of threads
    std::optional<WarpBlocking> warps;     // where warps multiply
    bool heads_in_rows;                    // attention reads rows of heads, too
    Storage heads, context;                // how projected heads and the context are kept
    JoinedRows joined;
};

// A projection and the Func it fills: panels of 16 columns, a head owns panels_per_head of them. In memory [B,panels,T,16]: what a
// tile of values reads is contiguous, and a register tile of the projection may span the panels of two heads. Where warps multiply heads as
// they are stored, the entries of one lie side by side, as in a tensor: [B,T,panels,16].
struct HeadProjection {
    LinearStages linear;
    Halide::Var column{"column"}, t{"t"}, panel{"panel"}, b{"b"};
    Halide::Func heads; // (column, t, panel, b)
    int panels_per_head;
    bool in_rows; // see above
    JoinedRows joined;

    Halide::Expr at(const Halide::Expr &d, const Halide::Expr &t, const Halide::Expr &h, const Halide::Expr &b) const;
};

HeadProjection project_heads(const std::string &name, const LayerRows &rows, const LinearWeight &weight, int head_dim, int num_heads,
                             const LayerNumbers &numbers);

// Attention inputs that read projected heads instead of tensors.
void read_queries(AttentionInputs *inputs, const Storage &storage, const HeadProjection &query);
void read_keys(AttentionInputs *inputs, const Storage &storage, const HeadProjection &key, const HeadProjection &value);

// out = context * W_O^T + bias, where context(d, h, t, b) is [B,T,H,d] in memory: the concat is only an index.
LinearStages project_out(const Problem &problem, const Halide::Func &context, const Halide::Expr &count, const LinearWeight &weight,
                         const LayerNumbers &numbers);

} // namespace polyhead::gen
