// The linear layer as an algorithm.
#include "linear.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::min;

LinearStages linear(const std::string &name, const LinearInputs &in) {
    LinearStages s;
    s.panels = in.panels;
    s.acc = Halide::Func(name);
    s.k = Halide::RDom(0, in.inner, 0, in.outer, name + "_k");
    // A register tile may reach beyond the last row or panel: it repeats them, and the store drops what is too much.
    Expr row = min(s.m, in.num_rows - 1), panel = min(s.panel, in.panels - 1);
    Expr bias = in.bias ? in.bias(panel * POLYHEAD_WEIGHT_PANEL + s.column) : Expr(0.0f);
    // acc = bias + sum over k of rows(k) * weight(k)
    s.acc(s.column, s.panel, s.m, s.b) = bias;
    s.acc(s.column, s.panel, s.m, s.b) += in.rows(s.k.x, s.k.y, row, s.b) * in.weight(s.column, s.k.y * in.inner + s.k.x, panel);
    return s;
}

Expr LinearStages::out(const Expr &n, const Expr &row, const Expr &batch) const {
    return acc(n % POLYHEAD_WEIGHT_PANEL, n / POLYHEAD_WEIGHT_PANEL, row, batch);
}

} // namespace polyhead::gen
