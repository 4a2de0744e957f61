// The stages of a layer's backward call.
#include "layer_gradients.h"

#include "../contract/problem.h"
#include "../generators/layer.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::Func;
using Halide::Var;

namespace {

using Matrix = LinearGradientsInputs::Matrix;

// A linear layer of the layer: what its tensors are called, and who reads its gradient of the input.
struct Projection {
    std::string letter; // weight_q, bias_q
    std::string heads;  // grad_query: what its gradients are made of
    std::string input;  // the tensor that it reads
    int inputs, outputs, head_dim;
    bool of_keys;
};

std::vector<Projection> projections_of(const Problem &p) {
    const bool cross = p.cross != 0;
    std::vector<Projection> all = {
        {"q", "query", "query", p.embed_dim, contract::width_of_queries(p), p.head_dim, false},
        {"k", "key", cross ? "key" : "query", p.kdim, contract::width_of_keys(p), p.head_dim, true},
        {"v", "value", cross ? "value" : "query", p.vdim, contract::width_of_values(p), p.head_dim_v, true},
    };
    if (p.gate != POLYHEAD_NO_GATE) {
        all.push_back({"gate", "gate", "query", p.embed_dim, contract::width_of_gates(p), contract::gates_of_head(p), false});
    }
    return all;
}

class LayerGradients {
public:
    LayerGradients(const LayerBackwardCall &call, KernelStages *stages)
        : call_(call), p_(call.attention.problem), stages_(*stages), queries_{call.attention.in.seq_len_q, call.attention.in.batch},
          keys_{call.attention.in.keys.rows(), call.attention.in.batch} {}

    void make() {
        const int width = contract::width_of_attended(p_);
        const LinearGradientsStages &out =
            add_linear("out", p_.embed_dim, width, queries_, rows_of_heads(queries_, p_.head_dim_v, element_of_heads("attended")),
                       in_rows("grad_out", queries_, p_.embed_dim, rows_of_tokens("grad_out", queries_)), nullptr);
        const Func grad_attended = out.grad_input_out.func;

        BackwardCall attention = call_.attention;
        attention.storage = floats_;
        attention.read_on = true;
        attention.problem.grad_gate = p_.gate != POLYHEAD_NO_GATE ? 1 : 0;
        attention.in.given_grad_out = [=, dim = p_.head_dim_v, rows = queries_](const Expr &d, const Expr &q, const Expr &h,
                                                                                const Expr &b) -> Expr {
            return grad_attended(Halide::unsafe_promise_clamped(h * dim + d, 0, width - 1), rows.place(q, b).first);
        };
        for (const char *name : {"grad_query", "grad_key", "grad_value", "grad_gate"}) {
            attention.results[name] = Func(std::string(name) + "_heads");
        }
        make_gradients(attention, &stages_);
        const std::vector<Projection> projections = projections_of(p_);
        std::vector<Matrix> rows; // all of them first: the panels of an input depend on every projection that reads it
        for (const Projection &projection : projections) {
            rows.push_back(rows_of(projection, attention.results.at("grad_" + projection.heads)));
        }
        for (size_t i = 0; i < rows.size(); i++) {
            add_projection(projections[i], rows[i]);
        }
        write_inputs();
    }

private:
    const LayerBackwardCall &call_;
    const Problem &p_;
    KernelStages &stages_;
    JoinedRows queries_, keys_;
    Storage floats_ = storage_of(POLYHEAD_F32, false);
    std::map<std::string, size_t> reader_of_;            // the first projection that reads an input, which has its panels
    std::map<std::string, std::vector<Func>> marks_of_;  // rows of an input that count
    std::map<std::string, std::vector<Func>> of_inputs_; // gradients of each input, to be added up

    // Rows of all batch rows together, of a tensor [B,T,D].
    Matrix rows_of_tokens(const std::string &name, const JoinedRows &joined) const {
        return [element = call_.operand(name), joined](const Expr &column, const Expr &row) {
            const auto [t, b] = joined.token(row, 0);
            return element({column, t, b});
        };
    }
    // The same of heads of `dim` entries.
    static Matrix rows_of_heads(const JoinedRows &joined, int dim, const KeySource::Element &element) {
        return [=](const Expr &column, const Expr &row) {
            const auto [t, b] = joined.token(row, 0);
            return element(column % dim, t, column / dim, b);
        };
    }
    KeySource::Element element_of_heads(const char *name) const {
        return
            [element = call_.operand(name)](const Expr &d, const Expr &t, const Expr &h, const Expr &b) { return element({d, t, h, b}); };
    }
    // Floats in memory, which are read many times.
    Matrix in_rows(const std::string &name, const JoinedRows &joined, int columns, const Matrix &matrix) {
        const auto load = [=](const Expr &column, const Expr &row, const Expr &, const Expr &) { return matrix(column, row); };
        return [rows = widened_rows(name, load, columns, joined.count({}), &stages_.widened)](const Expr &column, const Expr &row) {
            return rows(column, row, 0, 0);
        };
    }

    const JoinedRows &joined_of(const Projection &projection) const { return projection.of_keys ? keys_ : queries_; }
    // Some row may see nothing, or be seen by nobody. Causal self-attention alone has no such row.
    bool leaves_rows_out() const {
        const bool expression = p_.expression && p_.expression[0];
        return p_.kv_lengths != 0 || p_.mask != POLYHEAD_NO_MASK || p_.window != 0 || p_.position_offsets != 0 || expression ||
               (p_.causal != POLYHEAD_NOT_CAUSAL && p_.cross != 0);
    }

    Func result(const std::string &name) const { return call_.attention.results.at(name); }

    // The gradients of a linear layer; its gradient of the input is an intermediate. input_panels: where another one has made them.
    LinearGradientsStages &add_linear(const std::string &letter, int outputs, int inputs, const JoinedRows &joined, const Matrix &input,
                                      const Matrix &grad_out, const RowPanels *input_panels) {
        LinearGradientsInputs in;
        in.input = input;
        in.input_panels = input_panels;
        in.grad_out = in.rows_of_grad_out = grad_out;
        in.weight = [element = call_.operand("weight_" + letter)](const Expr &column, const Expr &row) { return element({column, row}); };
        in.rows_storage = floats_;
        in.weight_storage = call_.weights;
        in.embed_dim = inputs;
        in.out_features = outputs;
        in.rows = joined.count({});
        in.row_block = call_.attention.tiling.row_block;
        in.reduction_block = call_.attention.tiling.reduction_block;
        in.bias = p_.bias != 0;
        stages_.linear_gradients.push_back(linear_gradients(in, Func("grad_input_" + letter), result("grad_weight_" + letter),
                                                            in.bias ? result("grad_bias_" + letter) : Func()));
        stages_.linear_gradients.back().read_on = true;
        return stages_.linear_gradients.back();
    }

    // The gradient of the result of a projection.
    Matrix rows_of(const Projection &projection, const Func &of_heads) {
        const JoinedRows &joined = joined_of(projection);
        const auto element = [of_heads](const Expr &d, const Expr &t, const Expr &h, const Expr &b) -> Expr {
            return of_heads(d, t, h, b);
        };
        const Matrix rows =
            in_rows("grad_" + projection.heads, joined, projection.outputs, rows_of_heads(joined, projection.head_dim, element));
        if (leaves_rows_out()) {
            stages_.marks.push_back(mark_rows("grad_" + projection.heads + "_marks", rows, projection.outputs, joined.count({})));
            marks_of_[projection.input].push_back(stages_.marks.back().marks);
        }
        return rows;
    }

    // An input may be NaN where nobody sees its row, or the row sees nothing: its gradient is 0, and it counts as 0.
    Matrix input_of(const Projection &projection) const {
        const Matrix input = rows_of_tokens(projection.input, joined_of(projection));
        const auto found = marks_of_.find(projection.input);
        if (found == marks_of_.end()) {
            return input;
        }
        return [input, marks = found->second](const Expr &column, const Expr &row) {
            Expr counts;
            for (const Func &mark : marks) {
                counts = counts.defined() ? counts || mark(row) != 0 : mark(row) != 0;
            }
            return Halide::select(counts, input(column, row), 0.0f);
        };
    }

    void add_projection(const Projection &projection, const Matrix &rows) {
        const auto made = reader_of_.emplace(projection.input, stages_.linear_gradients.size());
        const RowPanels panels = made.second ? RowPanels() : stages_.linear_gradients[made.first->second].input;
        const LinearGradientsStages &stages = add_linear(projection.letter, projection.outputs, projection.inputs, joined_of(projection),
                                                         input_of(projection), rows, made.second ? nullptr : &panels);
        of_inputs_[projection.input].push_back(stages.grad_input_out.func);
    }

    // An input that several projections read has the sum of their gradients.
    void write_inputs() {
        for (const auto &[input, gradients] : of_inputs_) {
            const JoinedRows &joined = input == "query" ? queries_ : keys_;
            const Var n("n"), t("t"), b("b");
            const Expr row = joined.place(t, b).first;
            Expr sum;
            for (const Func &gradient : gradients) {
                sum = sum.defined() ? sum + gradient(n, row) : Expr(gradient(n, row));
            }
            Func written = result("grad_" + input);
            written(n, t, b) = call_.attention.storage.store(sum);
            stages_.sums_of_rows.push_back(written);
        }
    }
};

} // namespace

void make_layer_gradients(const LayerBackwardCall &call, KernelStages *stages) {
    LayerGradients(call, stages).make();
}

} // namespace polyhead::gen
