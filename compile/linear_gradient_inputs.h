// What the gradients of a linear layer read: tensors as floats.
#pragma once

#include <vector>

#include "../contract/weight_layout.h"
#include "../generators/linear_gradients.h"
#include "../generators/widened.h"
#include "../machines/machine.h"
#include "../plan/problem.h"
#include "../plan/tiling.h"

namespace polyhead::gen {

// operands: by name. Appends what becomes floats once for a call.
template <class Operands>
LinearGradientsInputs gradient_inputs(const Problem &p, const Tiling &tiling, const Machine &machine, const Operands &operands,
                                      std::vector<WidenedTensor> *widened) {
    using Halide::Expr;
    LinearGradientsInputs in;
    in.rows_storage = storage_of(p.dtype, machine.converts_f16());
    in.weight_storage = storage_of(contract::weight_dtype(p), machine.converts_f16());
    const auto floats = [&](const char *name, const Storage &own) {
        return [own, tensor = operands.at(name)](const Expr &column, const Expr &row) { return own.load((*tensor)(column, row)); };
    };
    in.rows = p.seq_len_q > 0 ? Expr(p.seq_len_q) : Expr(operands.at("input")->dim(1).extent());
    in.input = floats("input", in.rows_storage);
    in.weight = floats("weight", in.weight_storage);
    in.grad_out = in.rows_of_grad_out = floats("grad_out", in.rows_storage);
    if (p.dtype != POLYHEAD_F32) {
        const auto load = [&](const Expr &n, const Expr &m, const Expr &, const Expr &) { return in.grad_out(n, m); };
        in.rows_of_grad_out = [rows = widened_rows("grad_out", load, p.out_features, in.rows, widened)](const Expr &n, const Expr &m) {
            return rows(n, m, 0, 0);
        };
    }
    in.embed_dim = p.embed_dim;
    in.out_features = p.out_features;
    in.row_block = tiling.row_block;
    in.reduction_block = tiling.reduction_block;
    in.bias = p.bias != 0;
    return in;
}

} // namespace polyhead::gen
