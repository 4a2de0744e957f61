// The gradients of a linear layer as an algorithm: grad_input = grad_out * weight, grad_weight = grad_out^T * input.
#include "linear_gradients.h"

#include "formulas/infinity.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::Func;
using Halide::likely;
using Halide::min;
using Halide::RDom;

namespace {

constexpr int panel_width = POLYHEAD_WEIGHT_PANEL;

RowPanels panels_of_rows(const char *name, const LinearGradientsInputs::Matrix &element, int columns, const Expr &rows) {
    RowPanels p;
    p.floats = Func(std::string(name) + "_panels");
    p.panels = panels_of(columns);
    p.rows = rows;
    const Expr at = p.panel * panel_width + p.column;
    p.floats(p.column, p.row, p.panel) = element(columns % panel_width == 0 ? at : min(likely(at), columns - 1), p.row);
    return p;
}

// A linear layer: rows of grad_out, inputs n, columns k.
LinearStages layer_of_gradients(const LinearGradientsInputs &in, const LinearGradientsStages &s) {
    LinearInputs layer;
    layer.num_rows = in.rows;
    layer.inner = reduction_block(in.out_features, in.reduction_block, 1);
    layer.outer = in.out_features / layer.inner;
    layer.storage = layer.weight.storage = storage_of(POLYHEAD_F32, false);
    layer.stored_rows = [&](const Expr &n, const Expr &block, const Expr &m, const Expr &) {
        return in.rows_of_grad_out(block * layer.inner + n, m);
    };
    layer.weight.stored = [&](const Expr &column, const Expr &n, const Expr &panel) -> Expr { return s.weight.floats(column, n, panel); };
    layer.panels = s.weight.panels;
    return linear("grad_input", layer);
}

// Blocks of rows, the last with what is left.
struct BlocksOfRows {
    RDom rows, blocks;
};

BlocksOfRows blocks_of(const LinearGradientsInputs &in, const Expr &block, const std::string &name) {
    RDom rows(0, in.row_block, name + "_rows");
    rows.where(rows < in.rows - block * in.row_block);
    return {rows, RDom(0, (in.rows + in.row_block - 1) / in.row_block, name + "_blocks")};
}

void define_grad_weight(const LinearGradientsInputs &in, LinearGradientsStages &s) {
    const BlocksOfRows of = blocks_of(in, s.block, "grad_weight");
    s.rows = of.rows;
    s.blocks = of.blocks;
    // A register tile may reach beyond the last row or panel: it repeats them, and the store drops what is too much.
    const Expr n = min(s.n, in.out_features - 1), panel = min(s.panel, s.input.panels - 1),
               row = Halide::unsafe_promise_clamped(s.block * in.row_block + s.rows, 0, in.rows - 1);
    s.block_sum(s.column, s.panel, s.n, s.block) = 0.0f;
    s.block_sum(s.column, s.panel, s.n, s.block) += s.grad_out.at(n, row) * s.input.floats(s.column, row, panel);
    s.weight_sum(s.column, s.panel, s.n) = 0.0f;
    s.weight_sum(s.column, s.panel, s.n) += s.block_sum(s.column, s.panel, s.n, s.blocks);
}

void define_grad_bias(const LinearGradientsInputs &in, LinearGradientsStages &s) {
    const BlocksOfRows of = blocks_of(in, s.block, "grad_bias");
    s.bias_rows = of.rows;
    s.bias_blocks = of.blocks;
    const Expr panel = min(s.panel, s.grad_out.panels - 1);
    s.bias_block_sum(s.column, s.panel, s.block) = 0.0f;
    const Expr row = Halide::unsafe_promise_clamped(s.block * in.row_block + s.bias_rows, 0, in.rows - 1);
    s.bias_block_sum(s.column, s.panel, s.block) += s.grad_out.floats(s.column, row, panel);
    s.bias_sum(s.column, s.panel) = 0.0f;
    s.bias_sum(s.column, s.panel) += s.bias_block_sum(s.column, s.panel, s.bias_blocks);
    s.grad_bias(s.n) = s.bias_sum(s.n % panel_width, s.n / panel_width);
}

} // namespace

RowMarks mark_rows(const std::string &name, const LinearGradientsInputs::Matrix &matrix, int columns, const Expr &rows) {
    RowMarks m;
    m.marks = Func(name);
    m.rows = rows;
    m.columns = RDom(0, columns, name + "_columns");
    m.marks(m.row) = 0;
    m.marks(m.row) = Halide::max(m.marks(m.row), magnitude_bits(matrix(m.columns, m.row)));
    return m;
}

LinearGradientsStages linear_gradients(const LinearGradientsInputs &in, const Func &grad_input, const Func &grad_weight,
                                       const Func &grad_bias) {
    LinearGradientsStages s;
    s.embed_dim = in.embed_dim;
    s.out_features = in.out_features;
    s.bias = in.bias;
    s.owns_input = in.input_panels == nullptr;
    s.input = in.input_panels ? *in.input_panels : panels_of_rows("input", in.input, in.embed_dim, in.rows);
    s.grad_out = panels_of_rows("grad_out", in.grad_out, in.out_features, in.rows);
    s.weight = panels_of_rows("weight", in.weight, in.embed_dim, in.out_features);
    s.grad_input = layer_of_gradients(in, s);
    s.grad_input_out = {grad_input, s.k, s.m, {}, in.embed_dim};
    s.grad_input_out.func(s.k, s.m) = in.rows_storage.store(s.grad_input.out(s.k, s.m, 0));

    define_grad_weight(in, s);
    s.grad_weight = grad_weight;
    s.grad_weight(s.k, s.n) = in.weight_storage.store(s.weight_sum(s.k % panel_width, s.k / panel_width, s.n));
    s.grad_bias = grad_bias;
    if (s.bias) {
        define_grad_bias(in, s);
    }
    return s;
}

std::vector<Func> LinearGradientsStages::funcs() const {
    std::vector<Func> all = {input.floats, grad_out.floats, weight.floats};
    if (read_on) {
        all.push_back(grad_input_out.func);
    }
    const std::vector<Func> layer = grad_input.funcs();
    all.insert(all.end(), layer.begin(), layer.end());
    all.insert(all.end(), {block_sum, weight_sum});
    if (bias) {
        all.insert(all.end(), {bias_block_sum, bias_sum});
    }
    return all;
}

} // namespace polyhead::gen
