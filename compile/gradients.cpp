// The stages of a backward call.
#include "gradients.h"

#include <algorithm>

#include "../plan/frames/key_lanes.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::Func;
using Halide::Var;

namespace {

// An extent of a result.
Expr extent_of(const Func &result, int dimension) {
    return result.output_buffer().dim(dimension).extent();
}

// Rows of heads as floats, in whole register tiles of gradients where they are copied: once for all that reads them. made: they are no
// tensor of the call.
KeySource::Element rows_of(const BackwardCall &call, const std::string &name, const KeySource::Element &load, int dim, const Expr &rows,
                           bool made, KernelStages *stages) {
    if (!made && !stages_gradient_rows(call.problem, call.tiling)) {
        return load;
    }
    const auto padded = [=](const Expr &d, const Expr &t, const Expr &h, const Expr &b) {
        return Halide::select(Halide::likely(d < dim), load(Halide::min(d, dim - 1), t, h, b), 0.0f);
    };
    return widened_rows(name, padded, gradient_width(call.problem, call.tiling), rows, &stages->widened);
}

// What attention read, in rows for products.
void make_rows(const BackwardCall &call, const AttentionFormulas &of_given, AttentionInputs *in, KernelStages *stages) {
    const Problem &p = call.problem;
    const Expr query_rows = in->seq_len_q * in->num_heads * in->batch, key_rows = in->keys.rows() * in->num_kv_heads * in->batch;
    const KeySource read = in->keys;
    const Softmax &softmax = of_given.softmax();
    const auto before_gates = [softmax, given = in->given_grad_out](const Expr &d, const Expr &q, const Expr &h, const Expr &b) {
        return given(d, q, h, b) * softmax.gates(d, q, h, b);
    };
    in->stored_query = rows_of(call, "query", in->stored_query, p.head_dim, query_rows, false, stages);
    in->keys = {
        read.storage(),
        rows_of(
            call, "key", [read](auto... at) { return read.key(at...); }, p.head_dim, key_rows, false, stages),
        rows_of(call, "value", [read](auto... at) { return read.value(at...); }, p.head_dim_v, key_rows, false, stages), read.rows()};
    in->grad_out = softmax.has_gates() ? rows_of(call, "grad_out", before_gates, p.head_dim_v, query_rows, true, stages)
                                       : rows_of(call, "grad_out", in->given_grad_out, p.head_dim_v, query_rows, false, stages);
}

KeyLanesOperands floats_of(const AttentionInputs &in) {
    const KeySource::Element query = [in](auto... at) { return in.query(at...); }, key = [in](auto... at) { return in.keys.key(at...); },
                             value = [in](auto... at) { return in.keys.value(at...); };
    return {lane_product(nullptr), query, in.grad_out, key, value, query, in.grad_out, key};
}

// An element as it is stored, 0 where a condition that is mostly true does not hold.
Expr where(const Expr &exists, const Expr &element) {
    return Halide::select(Halide::likely(exists), element, Halide::cast(element.type(), 0));
}

// The tensors of the call as words: of neighbouring entries, and of an entry of neighbouring rows.
KeyLanesOperands words_of(const BackwardCall &call, const Visibility &visibility, KernelStages *stages) {
    const Problem &p = call.problem;
    const AttentionInputs &in = call.in;
    const LaneProduct product = lane_product(call.product);
    const int width = gradient_width(p, call.tiling), k = product.k;
    const Expr query_rows = in.seq_len_q, key_rows = in.keys.rows();
    const auto entries = [&](const char *name, const KeySource::Element &stored, int dim, const Expr &count) {
        const int copies = copied_gradient_words(p, call.tiling, call.lanes, dim);
        const KeySource::Element load = [=](const Expr &w, const Expr &t, const Expr &h, const Expr &b) {
            return product.word([&](int part) {
                const Expr d = w * k + part;
                return copies == 0 ? stored(d, t, h, b) : where(d < dim, stored(Halide::min(d, dim - 1), t, h, b));
            });
        };
        return copies == 0 ? load : widened_rows(name, load, copies, count, &stages->widened);
    };
    const auto rows = [&](const char *name, const KeySource::Element &stored, int dim, const Expr &last, const Expr &count,
                          const std::function<Expr(Expr b)> &end) {
        const auto load = [=](const Expr &d, const Expr &w, const Expr &h, const Expr &b) {
            return product.word([&](int part) {
                const Expr row = w * k + part, exists = width == dim ? row < end(b) : d < dim && row < end(b);
                return where(exists, stored(width == dim ? d : Halide::min(d, dim - 1), Halide::min(row, last), h, b));
            });
        };
        return widened_rows(name, load, width, count, &stages->widened);
    };
    const Expr queries = query_rows * in.num_heads * in.batch, keys = key_rows * in.num_kv_heads * in.batch;
    const auto rows_of_queries = [&](const char *name, const KeySource::Element &stored, int dim) {
        return rows(name, stored, dim, query_rows - 1, queries / k, [=](const Expr &) { return query_rows; });
    };
    return {product,
            entries("query", call.query, p.head_dim, queries),
            entries("grad_out", call.grad_out, p.head_dim_v, queries),
            entries("key", call.key, p.head_dim, keys),
            entries("value", call.value ? call.value : call.key, p.head_dim_v, keys),
            rows_of_queries("query_rows", call.query, p.head_dim),
            rows_of_queries("grad_out_rows", call.grad_out, p.head_dim_v),
            rows("key_rows", call.key, p.head_dim, key_rows - 1, keys / k, [=](const Expr &b) { return visibility.kv_length(b); })};
}

// The gradients of query, key and value, back through rotation and norm. formulas: of the tensors of the call.
void write_gradients(const BackwardCall &call, const AttentionFormulas &formulas, KernelStages *stages) {
    KeyLanesStages &s = *stages->gradients;
    const Rotation &rotation = formulas.rotation();
    const KeySource given = formulas.inputs().keys;
    using Rows = std::function<std::vector<Expr>(Expr, Expr)>;
    const Rows query_rows = [rotation](const Expr &q, const Expr &b) { return rotation.query_rows(q, b); },
               key_rows = [rotation](const Expr &kv, const Expr &b) { return rotation.key_rows(kv, b); };
    const AttentionInputs &in = formulas.inputs();
    const NormedHeads queries{s.q, in.seq_len_q, in.num_heads, in.batch}, keys{s.kv, given.rows(), in.num_kv_heads, in.batch};
    const auto gradient = [&](const char *name, HeadNorm::Of of, const KeySource::Element &sums, int head_dim, const Rows &rotated_by,
                              const KeySource::Element &element, const NormedHeads *of_weights, HeadGradient *steps) {
        const auto norm = std::find_if(stages->norms.begin(), stages->norms.end(), [of](const HeadNorm &n) { return n.of == of; });
        return gradient_of_given(name, sums, head_dim, rotation, rotation.active() ? rotated_by : Rows(),
                                 norm == stages->norms.end() ? nullptr : &*norm, element, of_weights, steps);
    };
    const auto write = [&](const char *name, const Var &token, const KeySource::Element &entry) {
        Func result = call.results.at(name);
        result(s.d, token, s.h, s.b) = call.storage.store(entry(s.d, token, s.h, s.b));
        return result;
    };
    s.grad_query = write("grad_query", s.q,
                         gradient("grad_query", HeadNorm::Of::query, s.query_sums, s.head_dim, query_rows, in.stored_query,
                                  call.problem.grad_query_norm != 0 ? &queries : nullptr, &s.of_query));
    KeySource::Element of_key = gradient(
        "grad_key", HeadNorm::Of::key, s.key_sums, s.head_dim, key_rows, [given](auto... at) { return given.key(at...); },
        call.problem.grad_key_norm != 0 ? &keys : nullptr, &s.of_key);
    if (given.value_in_key()) { // its leading entries are values, too
        of_key = [of_rows = of_key, of_value = s.value_sums, width = s.head_dim_v](const Expr &d, const Expr &t, const Expr &h,
                                                                                   const Expr &b) {
            return of_rows(d, t, h, b) + Halide::select(d < width, of_value(d, t, h, b), 0.0f);
        };
    } else {
        s.grad_value = write("grad_value", s.kv,
                             gradient(
                                 "grad_value", HeadNorm::Of::value, s.value_sums, s.head_dim_v, Rows(),
                                 [given](auto... at) { return given.value(at...); }, nullptr, &s.of_value));
    }
    s.grad_key = write("grad_key", s.kv, of_key);
}

// Sums over pairs, for a tensor that is added to logits.
Func pair_sums(const AttentionFormulas &formulas, const KeyLanesBlocking &blocking, const Func &result, bool of_slopes, int32_t broadcast,
               KernelStages *stages) {
    stages->pair_sums.emplace_back();
    PairSums &sums = stages->pair_sums.back();
    sums.of_slopes = of_slopes;
    sums.over_rows = of_slopes || (broadcast & POLYHEAD_BROADCAST_Q) != 0;
    sums.over_keys = of_slopes || (broadcast & POLYHEAD_BROADCAST_KV) != 0;
    sums.heads = extent_of(result, of_slopes ? 0 : 2);
    sums.batch = extent_of(result, of_slopes ? 1 : 3);
    define_pair_sums(formulas, blocking, *stages->gradients, &sums);
    return sums.sums;
}

// The gradients of what is added to logits, of sinks and of gates. formulas: of the rows that attention reads.
void write_other_gradients(const BackwardCall &call, const AttentionFormulas &formulas, const KeyLanesBlocking &blocking,
                           KernelStages *stages) {
    const Problem &p = call.problem;
    const Func delta = stages->gradients->delta;
    const AttentionInputs &in = formulas.inputs();
    const Softmax &softmax = formulas.softmax();
    const Var x("x"), q("q"), h("h"), b("b");
    const auto is_empty = [&](const Expr &lse) { return storage_of(POLYHEAD_F32, false).is_minus_infinity(lse); };
    const auto result_named = [&](const char *name) {
        stages->small_gradients.push_back(call.results.at(name));
        return stages->small_gradients.back();
    };
    if (p.grad_score_bias) {
        Func result = result_named("grad_score_bias");
        result(x, q, h, b) =
            in.additive_storage.store(pair_sums(formulas, blocking, result, false, p.score_bias_broadcast, stages)(x, q, h, b));
    }
    if (p.grad_alibi) {
        Func result = result_named("grad_alibi_slopes");
        result(h, b) = pair_sums(formulas, blocking, result, true, 0, stages)(0, 0, h, b);
    }
    if (p.grad_sinks) {
        const Halide::RDom rows(0, in.seq_len_q, 0, in.batch, "rows");
        const Expr lse = in.lse(rows.x, h, rows.y), share = softmax.sink_weight(softmax.reference_of(lse), h) * delta(rows.x, h, rows.y);
        Func result = result_named("grad_sinks");
        result(h) = 0.0f;
        result(h) -= Halide::select(is_empty(lse), 0.0f, share);
    }
    if (p.grad_gate) {
        const bool of_heads = p.gate == POLYHEAD_GATE_OF_HEADS;
        const Expr of_row = of_heads ? Expr(delta(q, h, b)) : in.given_grad_out(x, q, h, b) * in.out(x, q, h, b);
        Func result = call.read_on ? call.results.at("grad_gate") : result_named("grad_gate");
        if (call.read_on) {
            stages->gate_gradient = result;
        }
        result(x, q, h, b) = call.storage.store(Halide::select(is_empty(in.lse(q, h, b)), 0.0f, of_row * softmax.gate_slope(x, q, h, b)));
    }
}

// The gradients of weights and biases of norms: sums of heads, in order.
void write_norm_gradients(const BackwardCall &call, KernelStages *stages) {
    const Var d("d");
    const auto write = [&](const HeadGradient &of, const Func &sums, const std::string &name) {
        if (sums.defined()) {
            const Halide::RDom heads(0, of.heads.heads, 0, of.heads.batch, "heads");
            Func result = call.results.at(name);
            result(d) = 0.0f;
            result(d) += sums(d, heads.x, heads.y);
            stages->small_gradients.push_back(result);
        }
    };
    const KeyLanesStages &s = *stages->gradients;
    write(s.of_query, s.of_query.weight_sums, "grad_query_norm_weight");
    write(s.of_query, s.of_query.bias_sums, "grad_query_norm_bias");
    write(s.of_key, s.of_key.weight_sums, "grad_key_norm_weight");
    write(s.of_key, s.of_key.bias_sums, "grad_key_norm_bias");
}

// A tensor of the expression: the lines of all heads, added in order to what they were read from.
void write_table_gradient(const AttentionFormulas &formulas, const KeyLanesStages &s, size_t tensor, Func result) {
    const AttentionInputs &in = formulas.inputs();
    const std::vector<Var> place(size_t(result.dimensions()));
    result(place) = 0.0f;
    for (const TableLine &line : s.tables) {
        if (line.read.tensor != tensor) {
            continue;
        }
        const bool heads_first = line.read.follows != language::Follows::pairs; // so that an index of all heads is looked up once
        const Expr elements = line_elements(formulas, s, line);
        const Halide::RDom r = heads_first ? Halide::RDom(0, in.num_heads, 0, in.batch, 0, elements, "lines")
                                           : Halide::RDom(0, elements, 0, in.num_heads, 0, in.batch, "lines");
        const Expr head = heads_first ? r.x : r.y, b = heads_first ? r.y : r.z, element = heads_first ? r.z : r.x;
        std::vector<Expr> index = line_indices(formulas, s, line, element, head, b);
        std::reverse(index.begin(), index.end());
        for (size_t i = 0; i < index.size(); i++) {
            index[i] = Halide::clamp(index[i], 0, extent_of(result, int(i)) - 1);
        }
        result(index.empty() ? std::vector<Expr>{0} : index) += line_element(s, line, element, head, b);
    }
}

} // namespace

void make_gradients(const BackwardCall &call, KernelStages *stages) {
    const AttentionFormulas of_given(call.problem, call.expression, call.numerics, call.in);
    Problem p = call.problem;
    AttentionInputs in = call.in;
    call.keep_rows(&p, &in);
    KeyLanesOperands operands;
    if (call.product) {
        in.grad_out = in.given_grad_out;
        operands = words_of(call, of_given.visibility(), stages);
    } else {
        make_rows(call, of_given, &in, stages);
        operands = floats_of(in);
    }
    const Tiling &t = call.tiling;
    const KeyLanesBlocking blocking{t.q_tile,
                                    t.kv_tile,
                                    t.score_rows,
                                    t.key_panel,
                                    t.grad_rows,
                                    t.grad_columns,
                                    t.key_splits,
                                    call.lanes,
                                    call.fused,
                                    gradient_width(p, t),
                                    gradient_words(p, t, call.lanes)};
    const AttentionFormulas formulas(p, call.expression, call.numerics, in);
    stages->gradients = key_lanes(formulas, blocking, operands);
    stages->gradients->read_on = call.read_on;
    write_gradients(call, of_given, stages);
    write_norm_gradients(call, stages);
    write_other_gradients(call, formulas, blocking, stages);
    for (size_t i = 0; i < call.expression.tensors().size(); i++) {
        const ExpressionTensor &tensor = call.expression.tensors()[i];
        if (tensor.gradient) {
            write_table_gradient(formulas, *stages->gradients, i, call.results.at("expression_grad_" + tensor.name));
        }
    }
}

} // namespace polyhead::gen
