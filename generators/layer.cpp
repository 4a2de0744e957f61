// The whole attention layer, put together from the linear layer and the attention formulas.
#include "layer.h"

namespace polyhead::gen {

using Halide::Expr;

HeadProjection project_heads(const std::string &name, const LayerRows &rows, const LayerWeights::Panel &weight,
                             const LayerWeights::Bias &bias, int head_dim, int num_heads, int most_per_block,
                             const std::optional<ThreadBlocking> &threads) {
    HeadProjection p;
    const int panels_per_head = panels_of(head_dim);
    LinearInputs in;
    in.inner = reduction_block(rows.width, most_per_block);
    in.outer = rows.width / in.inner;
    in.rows = [&](const Expr &k, const Expr &block, const Expr &t, const Expr &b) { return rows.at(block * in.inner + k, t, b); };
    in.weight = weight;
    in.bias = bias;
    in.panels = num_heads * panels_per_head;
    in.num_rows = rows.count;
    p.linear = linear(name, in);
    p.panels_per_head = panels_per_head;
    p.heads = Halide::Func(name);
    if (threads) {
        auto at = [&p](const Expr &column, const Expr &panel, const Expr &t) { return std::vector<Expr>{column, t, panel, p.b}; };
        p.linear.write(p.heads, {p.column, p.t, p.panel, p.b}, p.b, in.panels * POLYHEAD_WEIGHT_PANEL, *threads, at,
                       [](const Expr &x) { return x; });
    } else {
        p.heads(p.column, p.t, p.panel, p.b) = p.linear.acc(p.column, p.panel, p.t, p.b);
    }
    return p;
}

Expr HeadProjection::at(const Expr &d, const Expr &row, const Expr &head, const Expr &batch) const {
    return heads(d % POLYHEAD_WEIGHT_PANEL, row, head * panels_per_head + d / POLYHEAD_WEIGHT_PANEL, batch);
}

void read_heads(AttentionInputs *inputs, const HeadProjection &query, const HeadProjection &key, const HeadProjection &value) {
    auto reader = [](const HeadProjection &projection) {
        return [projection](const Expr &d, const Expr &t, const Expr &h, const Expr &b) { return projection.at(d, t, h, b); };
    };
    inputs->query = reader(query);
    inputs->keys = KeySource(reader(key), reader(value), inputs->seq_len_kv);
}

LinearStages project_out(const Problem &problem, const Halide::Func &context, const Expr &count, const LayerWeights &weights,
                         int most_per_block) {
    LinearInputs in;
    // Blocks lie within a head, so that both indices stay affine.
    const int width = problem.head_dim_v;
    in.inner = reduction_block(width, most_per_block);
    in.outer = width / in.inner * problem.num_heads;
    const int blocks_per_head = width / in.inner, inner = in.inner;
    in.rows = [=](const Expr &k, const Expr &block, const Expr &t, const Expr &b) {
        return context(block % blocks_per_head * inner + k, block / blocks_per_head, t, b);
    };
    in.weight = weights.out;
    in.bias = weights.out_bias;
    in.panels = panels_of(problem.embed_dim);
    in.num_rows = count;
    return linear("out_linear", in);
}

} // namespace polyhead::gen
