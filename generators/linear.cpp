// The linear layer as an algorithm.
#include "linear.h"

#include <algorithm>

namespace polyhead::gen {

using Halide::Expr;
using Halide::min;

int reduction_block(int width, int most) {
    for (int block = std::min(width, most); block >= 8; block--) {
        if (width % block == 0) {
            return block;
        }
    }
    return width;
}

LinearStages linear(const std::string &name, const LinearInputs &in) {
    LinearStages s;
    s.panels = in.panels;
    s.num_rows = in.num_rows;
    s.block_sum = Halide::Func(name + "_block_sum");
    s.acc = Halide::Func(name + "_acc");
    s.k = Halide::RDom(0, in.inner, name + "_k");
    s.blocks = Halide::RDom(0, in.outer, name + "_blocks");
    // A register tile may reach beyond the last row or panel: it repeats them, and the store drops what is too much.
    Expr row = min(s.m, in.num_rows - 1), panel = min(s.panel, in.panels - 1);
    Expr bias = in.bias ? in.bias(panel * POLYHEAD_WEIGHT_PANEL + s.column) : Expr(0.0f);
    // block_sum = sum over the block's k of rows(k) * weight(k)
    s.block_sum(s.column, s.panel, s.m, s.b, s.block) = 0.0f;
    s.block_sum(s.column, s.panel, s.m, s.b, s.block) +=
        in.rows(s.k, s.block, row, s.b) * in.weight(s.column, s.block * in.inner + s.k, panel);
    // acc = bias + sum over blocks of block_sum
    s.acc(s.column, s.panel, s.m, s.b) = bias;
    s.acc(s.column, s.panel, s.m, s.b) += s.block_sum(s.column, s.panel, s.m, s.b, s.blocks);
    return s;
}

Expr LinearStages::out(const Expr &n, const Expr &row, const Expr &batch) const {
    return acc(n % POLYHEAD_WEIGHT_PANEL, n / POLYHEAD_WEIGHT_PANEL, row, batch);
}

} // namespace polyhead::gen
