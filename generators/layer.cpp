// The whole attention layer, put together from the linear layer and the attention formulas.
#include "layer.h"

namespace polyhead::gen {

using Halide::Expr;

std::pair<Expr, Expr> JoinedRows::place(const Expr &t, const Expr &b) const {
    // Halide 21 would bound the product of two variables by more.
    return joined() ? std::pair(Halide::unsafe_promise_clamped(b * tokens + t, 0, tokens * batch - 1), Expr(0)) : std::pair(t, b);
}

std::pair<Expr, Expr> JoinedRows::token(const Expr &row, const Expr &b) const {
    if (!joined()) {
        return {row, b};
    }
    const Expr divisor = Halide::max(tokens, 1); // so that Halide can bound a remainder
    return {row % divisor, Halide::unsafe_promise_clamped(row / divisor, 0, batch - 1)};
}

HeadProjection project_heads(const std::string &name, const LayerRows &rows, const LinearWeight &weight, int head_dim, int num_heads,
                             const LayerNumbers &numbers) {
    HeadProjection p;
    const int panels_per_head = panels_of(head_dim);
    LinearInputs in;
    in.inner = reduction_block(rows.width, numbers.reduction_block, weight.pair);
    in.outer = rows.width / in.inner;
    in.storage = rows.storage;
    in.stored_rows = [&](const Expr &k, const Expr &block, const Expr &t, const Expr &b) {
        const auto [token, batch_row] = numbers.joined.token(t, b);
        return rows.stored(block * in.inner + k, token, batch_row);
    };
    in.weight = weight;
    in.product = numbers.product;
    in.tiles = numbers.tiles;
    in.warps = numbers.warps;
    in.tensor = rows.tensor;
    in.panels = num_heads * panels_per_head;
    in.num_rows = numbers.joined.count(rows.count);
    p.joined = numbers.joined;
    p.linear = linear(name, in);
    p.panels_per_head = panels_per_head;
    p.in_rows = numbers.heads_in_rows;
    p.heads = Halide::Func(name);
    if (numbers.threads) {
        auto at = [&p](const Expr &column, const Expr &panel, const Expr &t) { return std::vector<Expr>{column, t, panel, p.b}; };
        p.linear.write(p.heads, {p.column, p.t, p.panel, p.b}, p.b, in.panels * POLYHEAD_WEIGHT_PANEL, *numbers.threads, at,
                       numbers.heads.store);
    } else {
        p.heads(p.column, p.t, p.panel, p.b) = numbers.heads.store(p.linear.acc(p.column, p.panel, p.t, p.b));
    }
    return p;
}

Expr HeadProjection::at(const Expr &d, const Expr &token, const Expr &head, const Expr &batch_row) const {
    const auto [row, batch] = joined.place(token, batch_row);
    constexpr int panel = POLYHEAD_WEIGHT_PANEL;
    const auto known = Halide::Internal::modulus_remainder(d);
    if (heads.value().type().bits() == 16 && known.modulus % 2 == 0) {
        // 16-bit entries are asked for in pairs, 2 w and 2 w + 1. Halide 21 sees that they are neighbours if both are written with w.
        const int in_word = int(known.remainder % 2);
        const Expr word = Halide::Internal::simplify((d - in_word) / 2);
        return heads(word % (panel / 2) * 2 + in_word, row, head * panels_per_head + word / (panel / 2), batch);
    }
    return heads(d % panel, row, head * panels_per_head + d / panel, batch);
}

namespace {

auto reader(const HeadProjection &projection) {
    return [projection](const Expr &d, const Expr &t, const Expr &h, const Expr &b) { return projection.at(d, t, h, b); };
}

} // namespace

void read_queries(AttentionInputs *inputs, const Storage &storage, const HeadProjection &query) {
    inputs->query_storage = storage;
    inputs->stored_query = reader(query);
}

void read_keys(AttentionInputs *inputs, const Storage &storage, const HeadProjection &key, const HeadProjection &value) {
    inputs->keys = KeySource(storage, reader(key), reader(value), key.linear.num_rows);
}

LinearStages project_out(const Problem &problem, const Halide::Func &context, const Expr &count, const LinearWeight &weight,
                         const LayerNumbers &numbers) {
    LinearInputs in;
    // Blocks lie within a head, so that both indices stay affine.
    const int width = problem.head_dim_v;
    in.inner = numbers.tiles || numbers.warps ? width : reduction_block(width, numbers.reduction_block, weight.pair); // a head as it lies
    in.outer = width / in.inner * problem.num_heads;
    in.storage = numbers.context;
    const int blocks_per_head = width / in.inner, inner = in.inner;
    in.stored_rows = [=](const Expr &k, const Expr &block, const Expr &t, const Expr &b) {
        const auto [token, batch_row] = numbers.joined.token(t, b);
        return context(block % blocks_per_head * inner + k, block / blocks_per_head, token, batch_row);
    };
    in.weight = weight;
    in.product = numbers.context.type == Halide::Float(32) ? nullptr : numbers.product;
    in.tiles = numbers.tiles;
    in.warps = numbers.warps;
    in.tensor = context;
    in.panels = panels_of(problem.embed_dim);
    in.num_rows = numbers.joined.count(count);
    return linear("out_linear", in);
}

} // namespace polyhead::gen
