// User expressions: the derivatives of the score by the score that it is made from, and by elements that it reads, by reverse accumulation
// over the nodes.
#include <map>
#include <set>

#include "../../plan/language/program.h"
#include "values.h"

namespace polyhead::gen::language {

using Halide::Expr;

namespace {

// Nodes are shared: each comes behind all that it uses, once.
void collect(const Node *node, std::set<const Node *> *seen, std::vector<const Node *> *nodes) {
    if (seen->insert(node).second) {
        for (const NodePtr &arg : node->args) {
            collect(arg.get(), seen, nodes);
        }
        nodes->push_back(node);
    }
}

// What the derivative by a node's value is to each of its arguments, from the values of the arguments; undefined: nothing flows there. Of
// minimum, maximum, absolute and select the branch that the value was taken from. Numbers that are rounded down, and integers, are
// constant.
std::vector<Expr> passed_on(const Node &node, const Expr &y, const std::vector<Expr> &x, const ExpressionScope &scope) {
    switch (node.op) {
    case Op::negate:
        return {-y};
    case Op::add:
        return {y, y};
    case Op::subtract:
        return {y, -y};
    case Op::multiply:
        return {y * x[1], y * x[0]};
    case Op::divide:
        return {y / x[1], -y * x[0] / (x[1] * x[1])};
    case Op::modulo:
        return {y, -y * Halide::floor(x[0] / x[1])};
    case Op::minimum:
        return {Halide::select(x[0] < x[1], y, 0.0f), Halide::select(x[0] < x[1], 0.0f, y)};
    case Op::maximum:
        return {Halide::select(x[0] > x[1], y, 0.0f), Halide::select(x[0] > x[1], 0.0f, y)};
    case Op::absolute:
        return {Halide::select(x[0] > 0.0f, y, x[0] < 0.0f, -y, 0.0f)};
    case Op::exp:
        return {y * scope.exp(x[0])};
    case Op::log:
        return {y / x[0]};
    case Op::tanh: {
        const Expr bent = scope.tanh(x[0]);
        return {y * ((1.0f - bent) * (1.0f + bent))};
    }
    case Op::sqrt:
        return {y * 0.5f / Halide::sqrt(x[0])};
    case Op::select:
        return {Expr(), Halide::select(x[0], y, 0.0f), Halide::select(x[0], 0.0f, y)};
    default:
        return {};
    }
}

// The sum of the derivatives of root by the values of those nodes.
template <class Wanted> Expr derivative(const Node &root, const ExpressionScope &scope, const Wanted &wanted) {
    std::set<const Node *> seen;
    std::vector<const Node *> nodes;
    collect(&root, &seen, &nodes);
    std::map<const Node *, Expr> derivative{{&root, 1.0f}};
    Expr total = 0.0f;
    for (auto at = nodes.rbegin(); at != nodes.rend(); ++at) {
        const Node &node = **at;
        const auto found = derivative.find(&node);
        if (found == derivative.end()) {
            continue;
        }
        if (wanted(node)) {
            total = total + found->second;
        }
        std::vector<Expr> x;
        for (const NodePtr &arg : node.args) {
            x.push_back(value_of(*arg, scope));
        }
        const std::vector<Expr> passed = passed_on(node, found->second, x, scope);
        for (size_t i = 0; i < passed.size(); i++) {
            if (passed[i].defined() && node.args[i]->type == Type::real) {
                Expr &sum = derivative[node.args[i].get()];
                sum = sum.defined() ? sum + passed[i] : passed[i];
            }
        }
    }
    return total;
}

} // namespace

Expr slope_of(const Node &root, const ExpressionScope &scope) {
    return derivative(root, scope,
                      [](const Node &node) { return node.op == Op::variable && static_cast<Variable>(node.index) == Variable::score; });
}

Expr derivative_of(const Node &root, const Node &read, const ExpressionScope &scope) {
    return derivative(root, scope, [&](const Node &node) { return &node == &read; });
}

} // namespace polyhead::gen::language
