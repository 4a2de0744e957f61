// The whole attention layer, put together from the linear layer and the attention formulas.
#include "layer.h"

namespace polyhead::gen {

using Halide::Expr;

HeadProjection project_heads(const std::string &name, const LayerRows &rows, const LayerWeights::Panel &weight, const LayerWeights::Bias &bias,
                             int head_dim, int num_heads) {
    HeadProjection p;
    const int panels_per_head = panels_of(head_dim);
    LinearInputs in;
    in.rows = [&](const Expr &k, const Expr &, const Expr &t, const Expr &b) { return rows.at(k, t, b); };
    in.weight = weight;
    in.bias = bias;
    in.inner = rows.width;
    in.outer = 1;
    in.panels = num_heads * panels_per_head;
    in.num_rows = rows.count;
    p.linear = linear(name + "_acc", in);
    p.head_dim = head_dim;
    p.num_heads = num_heads;
    p.heads = Halide::Func(name);
    p.heads(p.d, p.t, p.h, p.b) = p.linear.head_out(p.d, p.h, panels_per_head, p.t, p.b);
    return p;
}

void read_heads(AttentionInputs *inputs, const HeadProjection &query, const HeadProjection &key, const HeadProjection &value) {
    auto reader = [](const Halide::Func &heads) {
        return [heads](const Expr &d, const Expr &t, const Expr &h, const Expr &b) { return heads(d, t, h, b); };
    };
    inputs->query = reader(query.heads);
    inputs->key = reader(key.heads);
    inputs->value = reader(value.heads);
}

LinearStages project_out(const Problem &problem, const Halide::Func &context, const Expr &count, const LayerWeights &weights) {
    LinearInputs in;
    in.rows = [context](const Expr &d, const Expr &h, const Expr &t, const Expr &b) { return context(d, h, t, b); };
    in.weight = weights.out;
    in.bias = weights.out_bias;
    in.inner = problem.head_dim_v;
    in.outer = problem.num_heads;
    in.panels = panels_of(problem.embed_dim);
    in.num_rows = count;
    return linear("out_acc", in);
}

} // namespace polyhead::gen
