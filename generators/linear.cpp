// The linear layer as an algorithm.
#include "linear.h"

#include <algorithm>

namespace polyhead::gen {

using Halide::Expr;
using Halide::min;

namespace {

// sum, and the products of step k of a block: of one input, or of as many as lie side by side.
Expr add_step(const LinearInputs &in, int inputs, Expr sum, const Expr &k, const Expr &block, const Expr &row, const Expr &b,
              const Expr &column, const Expr &panel) {
    auto stored_row = [&](int i) {
        const Expr at = k * inputs + i;
        if (in.inner % inputs == 0) {
            return in.stored_rows(at, block, row, b);
        }
        const Expr element = in.stored_rows(min(at, in.inner - 1), block, row, b); // the last word has one input
        return Halide::select(at < in.inner, element, Halide::cast(element.type(), 0));
    };
    auto stored_weight = [&](int i) { return in.weight.stored(column, block * in.inner + k * inputs + i, panel); };
    if (inputs == 1) {
        return sum + in.storage.load(stored_row(0)) * in.weight.storage.load(stored_weight(0));
    }
    if (in.product) {
        const LaneProduct product = lane_product(in.product);
        return product.add_products(sum, product.word(stored_row), product.word(stored_weight));
    }
    const std::vector<Expr> entries =
        in.weight.wide ? floats_of_bf16_pair(stored_weight(0), stored_weight(1))
                       : std::vector<Expr>{in.weight.storage.load(stored_weight(0)), in.weight.storage.load(stored_weight(1))};
    for (int i = 0; i < inputs; i++) {
        sum = sum + in.storage.load(stored_row(i)) * entries[size_t(i)];
    }
    return sum;
}

} // namespace

int reduction_block(int width, int most, int pair) {
    for (int block = std::min(width, most); block >= 8; block--) {
        if (width % block == 0 && block % pair == 0) {
            return block;
        }
    }
    return width;
}

LinearStages linear(const std::string &name, const LinearInputs &in) {
    LinearStages s;
    s.inner = in.inner;
    s.panels = in.panels;
    s.num_rows = in.num_rows;
    s.widens_pairs = false;
    if (in.warps) {
        s.warps = linear_warps(name, in, *in.warps);
        return s;
    }
    s.acc = Halide::Func(name + "_acc");
    // A register tile may reach beyond the last row or panel: it repeats them, and the store drops what is too much.
    Expr row = min(s.m, in.num_rows - 1), panel = min(s.panel, in.panels - 1);
    Expr bias = in.weight.bias ? in.weight.bias(panel * POLYHEAD_WEIGHT_PANEL + s.column) : Expr(0.0f);
    if (in.tiles) {
        // Of a tile that reaches beyond them, what is too much is left as it is; nobody reads it.
        s.products = Halide::Func(name + "_products");
        s.products.define_extern(in.tiles->helper("linear"),
                                 {in.tensor, in.weight.tensor, in.inner, in.outer, Halide::ExternFuncArgument(in.num_rows), in.panels},
                                 Halide::Float(32), {s.column, s.panel, s.m, s.b});
        s.acc(s.column, s.panel, s.m, s.b) = bias + s.products(s.column, s.panel, s.m, s.b);
        return s;
    }
    s.block_sum = Halide::Func(name + "_block_sum");
    const int pair = in.weight.pair, inputs = in.inner % pair == 0 || in.outer == 1 ? pair : 1; // of a step
    s.k = Halide::RDom(0, (in.inner + inputs - 1) / inputs, name + "_k");
    s.widens_pairs = inputs == 2 && !in.product;
    s.blocks = Halide::RDom(0, in.outer, name + "_blocks");
    // block_sum = sum over the block's k of rows(k) * weight(k)
    s.block_sum(s.column, s.panel, s.m, s.b, s.block) = 0.0f;
    s.block_sum(s.column, s.panel, s.m, s.b, s.block) =
        add_step(in, inputs, s.block_sum(s.column, s.panel, s.m, s.b, s.block), s.k, s.block, row, s.b, s.column, panel);
    // acc = bias + sum over blocks of block_sum
    s.acc(s.column, s.panel, s.m, s.b) = bias;
    s.acc(s.column, s.panel, s.m, s.b) += s.block_sum(s.column, s.panel, s.m, s.b, s.blocks);
    return s;
}

std::vector<Halide::Func> LinearStages::funcs() const {
    return warps                ? warps->funcs()
           : products.defined() ? std::vector<Halide::Func>{products, acc}
                                : std::vector<Halide::Func>{block_sum, acc};
}

Expr LinearStages::out(const Expr &n, const Expr &row, const Expr &batch) const {
    return acc(n % POLYHEAD_WEIGHT_PANEL, n / POLYHEAD_WEIGHT_PANEL, row, batch);
}

void LinearStages::write(Halide::Func out, const std::vector<Halide::Var> &vars, const Expr &batch, int columns,
                         const ThreadBlocking &blocking, const Arguments &at, const std::function<Expr(Expr)> &store) {
    if (warps) {
        return warps->write(out, vars, batch, columns, at, store);
    }
    constexpr int panel_width = POLYHEAD_WEIGHT_PANEL;
    threads = blocking;
    threads.panels = std::min(threads.panels, panels);
    const int block_rows = threads.rows * threads.row_threads;
    written = Halide::RDom({{0, threads.columns},
                            {0, threads.rows},
                            {0, panel_width / threads.columns},
                            {0, threads.panels},
                            {0, threads.row_threads},
                            {0, (panels + threads.panels - 1) / threads.panels},
                            {0, (num_rows + block_rows - 1) / block_rows}},
                           out.name() + "_written");
    const Expr in_panel = written[2] * threads.columns + written[0], panel_index = written[5] * threads.panels + written[3];
    const Expr row = written[6] * block_rows + written[4] * threads.rows + written[1];
    written.where(panel_index * panel_width + in_panel < columns);
    written.where(row < num_rows);
    const Expr value = store(acc(in_panel, panel_index, row, batch));
    out(vars) = Halide::undef(value.type());
    out(at(in_panel, panel_index, row)) = value;
}

} // namespace polyhead::gen
