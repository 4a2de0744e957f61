// Gradients of heads before their rotation and norm.
#include "head_gradients.h"

#include "formulas/infinity.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::Func;
using Halide::RDom;

namespace {

// The sum over the entries of a row, first of each lane.
Func sum_of_row(const std::string &name, HeadGradient *g, Func *of_lanes, const std::function<Expr(Expr d)> &term) {
    const Expr at = g->lane + g->lanes * g->words.x;
    const bool whole = g->head_dim % g->lanes == 0;
    const Expr entry = term(whole ? at : Halide::min(at, g->head_dim - 1));
    *of_lanes = Func(name + "_of_lanes");
    (*of_lanes)(g->lane, g->t, g->h, g->b) = 0.0f;
    (*of_lanes)(g->lane, g->t, g->h, g->b) += whole ? entry : Halide::select(at < g->head_dim, entry, 0.0f);
    Func sum(name);
    sum(g->t, g->h, g->b) = 0.0f;
    sum(g->t, g->h, g->b) += (*of_lanes)(g->all_lanes, g->t, g->h, g->b);
    return sum;
}

// The rotation by the opposite angle.
KeySource::Element turned_back(const std::string &name, const KeySource::Element &of_rows, const Rotation &rotation,
                               const std::function<std::vector<Expr>(Expr, Expr)> &rotated_by, HeadGradient *g) {
    g->rotary_dim = rotation.dim();
    g->turned = Func(name + "_turned");
    g->turned(g->d, g->t, g->h, g->b) = Halide::undef<float>();
    if (g->rotary_dim < g->head_dim) {
        const int first = rotation.first() > 0 ? 0 : g->rotary_dim;
        g->plain = RDom(first, g->head_dim - g->rotary_dim, name + "_plain");
        g->turned(g->plain, g->t, g->h, g->b) = of_rows(g->plain, g->t, g->h, g->b);
    }
    g->rotated = RDom(0, 2, 0, g->rotary_dim / 2, name + "_rotated");
    const Expr part = g->rotated.x, pair = g->rotated.y;
    g->turned(rotation.entry(part, pair), g->t, g->h, g->b) =
        rotation.turned_back(part, pair, rotated_by(g->t, g->b), [&](const Expr &entry) { return of_rows(entry, g->t, g->h, g->b); });
    return [turned = g->turned](const Expr &d, const Expr &t, const Expr &h, const Expr &b) -> Expr { return turned(d, t, h, b); };
}

// A row that took part in nothing may hold NaN: what is multiplied by 0 is 0.
Expr times(const Expr &a, const Expr &b) {
    return Halide::select(is_zero(a), 0.0f, a * b);
}

// An entry before weight and bias of the norm.
KeySource::Element normalised(const HeadNorm &norm, const KeySource::Element &given) {
    return [norm, given](const Expr &d, const Expr &t, const Expr &h, const Expr &b) {
        const Expr entry = given(d, t, h, b);
        return (norm.centred ? entry - norm.mean(t, h, b) : entry) * norm.factor(t, h, b);
    };
}

// The gradients of weight and bias of a norm, of each head.
KeySource::Element summed_over_tokens(const std::string &name, const KeySource::Element &of_rows, const HeadNorm &norm,
                                      const KeySource::Element &given, const NormedHeads &heads, HeadGradient *g) {
    g->heads = heads;
    g->kept = Func(name + "_kept");
    g->kept(g->d, heads.token, g->h, g->b) = of_rows(g->d, heads.token, g->h, g->b);
    g->tokens = RDom(0, heads.tokens, name + "_tokens");
    const Expr row = g->kept(g->d, g->tokens, g->h, g->b);
    g->weight_sums = Func(name + "_of_weight");
    g->weight_sums(g->d, g->h, g->b) = 0.0f;
    g->weight_sums(g->d, g->h, g->b) += times(row, normalised(norm, given)(g->d, g->tokens, g->h, g->b));
    if (norm.centred) {
        g->bias_sums = Func(name + "_of_bias");
        g->bias_sums(g->d, g->h, g->b) = 0.0f;
        g->bias_sums(g->d, g->h, g->b) += row;
    }
    return [kept = g->kept](const Expr &d, const Expr &t, const Expr &h, const Expr &b) -> Expr { return kept(d, t, h, b); };
}

// y = x' * weight + bias with x' = (x - mean) * factor: the gradient of x is factor * (g - mean(g) - x' * mean(g * x')), where g is the
// gradient of y times the weight; mean(g) of centred norms alone.
KeySource::Element before_norm(const std::string &name, const KeySource::Element &of_rows, const HeadNorm &norm,
                               const KeySource::Element &given, HeadGradient *g) {
    g->lanes = norm.lanes;
    g->words = RDom(0, (g->head_dim + g->lanes - 1) / g->lanes, name + "_words");
    g->all_lanes = RDom(0, g->lanes, name + "_lanes");
    g->weighted = Func(name + "_weighted");
    const Expr y = of_rows(g->d, g->t, g->h, g->b);
    g->weighted(g->d, g->t, g->h, g->b) = norm.weight.defined() ? y * norm.weight(g->d, 0) : y;
    const KeySource::Element x = normalised(norm, given);
    const auto gradient = [g](const Expr &d) -> Expr { return g->weighted(d, g->t, g->h, g->b); };
    g->products =
        sum_of_row(name + "_products", g, &g->lane_products, [&](const Expr &d) { return times(gradient(d), x(d, g->t, g->h, g->b)); });
    if (norm.centred) {
        g->sums = sum_of_row(name + "_sums", g, &g->lane_sums, gradient);
    }
    const float share = 1.0f / float(g->head_dim);
    return [=, weighted = g->weighted, products = g->products, sums = g->sums](const Expr &d, const Expr &t, const Expr &h,
                                                                               const Expr &b) -> Expr {
        Expr rest = weighted(d, t, h, b) - times(products(t, h, b) * share, x(d, t, h, b));
        rest = sums.defined() ? rest - sums(t, h, b) * share : rest;
        return times(rest, norm.factor(t, h, b));
    };
}

} // namespace

KeySource::Element gradient_of_given(const std::string &name, const KeySource::Element &of_rows, int head_dim, const Rotation &rotation,
                                     const std::function<std::vector<Expr>(Expr, Expr)> &rotated_by, const HeadNorm *norm,
                                     const KeySource::Element &given, const NormedHeads *of_weights, HeadGradient *stages) {
    stages->head_dim = head_dim;
    KeySource::Element gradient = rotated_by ? turned_back(name, of_rows, rotation, rotated_by, stages) : of_rows;
    gradient = norm && of_weights ? summed_over_tokens(name, gradient, *norm, given, *of_weights, stages) : gradient;
    return norm ? before_norm(name, gradient, *norm, given, stages) : gradient;
}

std::vector<Func> HeadGradient::funcs() const {
    std::vector<Func> all;
    for (const Func &f : {turned, kept, weight_sums, bias_sums, weighted, lane_products, products, lane_sums, sums}) {
        if (f.defined()) {
            all.push_back(f);
        }
    }
    return all;
}

} // namespace polyhead::gen
