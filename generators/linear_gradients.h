// Gradients of a linear layer: of its input, weight and bias, from the gradient of its result.
#pragma once

#include "linear.h"

namespace polyhead::gen {

// A matrix as floats in panels: POLYHEAD_WEIGHT_PANEL columns of a row lie side by side, rows one behind the other.
struct RowPanels {
    Halide::Var column{"column"}, row{"row"}, panel{"panel"};
    Halide::Func floats; // (column in panel, row, panel); columns that do not exist repeat the last one
    int panels = 0;
    Halide::Expr rows;

    Halide::Expr at(const Halide::Expr &column, const Halide::Expr &row) const {
        return floats(column % POLYHEAD_WEIGHT_PANEL, row, column / POLYHEAD_WEIGHT_PANEL);
    }
};

// What the gradients are made of; elements are floats.
struct LinearGradientsInputs {
    using Matrix = std::function<Halide::Expr(Halide::Expr column, Halide::Expr row)>;
    Matrix input, grad_out, weight;          // columns: of input and weight embed_dim, of grad_out out_features
    const RowPanels *input_panels = nullptr; // not null: those of another layer that reads the same input
    Matrix rows_of_grad_out;                 // the same as floats in memory, which are read many times
    Storage rows_storage, weight_storage;    // of the gradients of input and weight
    int embed_dim, out_features;
    Halide::Expr rows;
    int row_block;       // rows that are summed on their own before they meet the rest
    int reduction_block; // the same of outputs, for the gradient of the input
    bool bias;
};

// Rows of a matrix that have an entry other than 0.
struct RowMarks {
    Halide::Var row{"row"};
    Halide::RDom columns;
    Halide::Func marks; // (row): the largest magnitude as an integer
    Halide::Expr rows;
};
RowMarks mark_rows(const std::string &name, const LinearGradientsInputs::Matrix &matrix, int columns, const Halide::Expr &rows);

struct LinearGradientsStages {
    Halide::Var column{"column"}, panel{"panel"}, n{"n"}, k{"k"}, m{"m"}, block{"block"};
    RowPanels input, grad_out, weight;
    LinearStages grad_input; // a linear layer of grad_out, whose weight is `weight` as it lies
    LinearOut grad_input_out;

    int embed_dim, out_features;
    bool bias;
    bool owns_input = true; // its panels are made for this layer
    bool read_on = false;   // grad_input is an intermediate, and no result
    Halide::RDom rows, blocks;
    Halide::Func block_sum{"grad_weight_block_sum"}; // (column in panel, panel, n, block), in registers
    Halide::Func weight_sum{"grad_weight_sum"};      // (column in panel, panel, n)
    Halide::Func grad_weight;                        // (k, n)

    Halide::RDom bias_rows, bias_blocks;
    Halide::Func bias_block_sum{"grad_bias_block_sum"}; // (column in panel, panel, block)
    Halide::Func bias_sum{"grad_bias_sum"};             // (column in panel, panel)
    Halide::Func grad_bias;                             // (n); as what is above it, only with bias

    // Every Func but the results, producers first.
    std::vector<Halide::Func> funcs() const;
};

// Results are Funcs without a definition; without bias grad_bias stays one.
LinearGradientsStages linear_gradients(const LinearGradientsInputs &inputs, const Halide::Func &grad_input, const Halide::Func &grad_weight,
                                       const Halide::Func &grad_bias);

} // namespace polyhead::gen
