// What every frame of attention leaves: out, and the statistics of its rows.
#pragma once

#include <functional>
#include <vector>

#include "../formulas.h"

namespace polyhead::gen {

// 0. Where the condition holds, a function of the runtime is called that asks memory for rows before they are needed
// (runtime/helpers/fetch.h).
Halide::Expr prefetch_call(const Halide::Expr &condition, const char *function, const std::vector<Halide::Expr> &arguments);
// 0. Asks memory for the line at this address, a number, in one instruction.
Halide::Expr prefetched(const Halide::Expr &address);
// Does a call have so many bytes in these rows of each batch row that they come from memory?
Halide::Expr exceeds_cache(const AttentionInputs &in, const Halide::Expr &rows, int row_bytes, int64_t least_bytes);

// The Func that takes the result of attention. Two outputs of different shape cannot share a loop nest: where a frame keeps its tile inside
// a task, statistics travel with the result as further columns.
struct AttentionOut {
    Halide::Func func;
    Halide::Var d, q, h, b;
    int columns = 0; // head_dim_v, and one for each statistic that travels with out
    std::vector<Statistic> statistics;
};

// The Funcs of a frame. A frame's own stages derive from it.
class AttentionStages {
public:
    using Expr = Halide::Expr;
    // Arguments of out for a column and a row, and what is kept of a value.
    using Arguments = std::function<std::vector<Expr>(Expr d, Expr q)>;
    using Store = std::function<Expr(Expr)>;

    virtual ~AttentionStages() = default;

    // The tile stays inside a task, so that two outputs of different shape cannot be written from it.
    virtual bool writes_one_output() const { return true; }
    // Defines o.func: head_dim_v columns, and the statistics that travel with them.
    virtual void write(const AttentionOut &o, const AttentionFormulas &formulas, const Arguments &at, const Store &store) = 0;
    // Of row q of head h; undefined where a frame writes one output.
    virtual Expr statistic(Statistic, const AttentionFormulas &, const Expr &q, const Expr &h, const Expr &b) const;
    // Every Func, producers first.
    virtual std::vector<Halide::Func> funcs() const = 0;
};

// A frame whose merged rows are a Func, which out is read from.
class MergedRowsStages : public AttentionStages {
public:
    void write(const AttentionOut &o, const AttentionFormulas &formulas, const Arguments &at, const Store &store) override;
    Expr statistic(Statistic which, const AttentionFormulas &formulas, const Expr &q, const Expr &h, const Expr &b) const override;

private:
    // Row q of head h: column d of out, the reference of its probs and their sum.
    virtual Expr out_of(const AttentionFormulas &formulas, const Expr &d, const Expr &q, const Expr &h, const Expr &b) const = 0;
    virtual Expr reference_of(const Expr &q, const Expr &h, const Expr &b) const = 0;
    virtual Expr sum_of(const Expr &q, const Expr &h, const Expr &b) const = 0;
};

} // namespace polyhead::gen
