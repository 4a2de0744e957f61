// User expressions: nodes as Halide Exprs.
#include "values.h"

#include "../../plan/language/program.h"
#include "source.h"

namespace polyhead::gen::language {

using Halide::Expr;

namespace {

Expr variable(Variable which, const ExpressionScope &scope) {
    switch (which) {
    case Variable::score:
        return scope.score;
    case Variable::b:
        return scope.b;
    case Variable::h:
        return scope.h;
    case Variable::q:
        return scope.q;
    case Variable::kv:
        return scope.kv;
    case Variable::position:
        return scope.position;
    case Variable::seq_len_q:
        return scope.seq_len_q;
    case Variable::seq_len_kv:
        return scope.seq_len_kv;
    case Variable::kv_length:
        return scope.kv_length;
    }
    return Expr();
}

// Halide rounds so that the remainder is not negative; the language rounds down. They differ for negative divisors only.
Expr divided(const Expr &a, const Expr &b, bool positive) {
    return positive || b.type().is_float() ? a / b : a / b - Halide::cast<int32_t>(b < 0 && a % b != 0);
}

Expr remainder(const Expr &a, const Expr &b, bool positive) {
    return positive || b.type().is_float() ? a % b : Halide::select(b < 0 && a % b != 0, a % b + b, a % b);
}

// Beyond 2^30 a float has no meaning as an index or a position.
Expr rounded_down(const Expr &a) {
    constexpr float far = 1 << 30;
    return Halide::cast<int32_t>(Halide::clamp(Halide::floor(a), -far, far));
}

Expr number(const Node &node) {
    return node.type == Type::integer ? Expr(node.integer) : Expr(static_cast<float>(node.real));
}

Expr arithmetic(const Node &node, const std::vector<Expr> &x) {
    const bool positive = node.args.size() == 2 && node.args[1]->op == Op::number && node.args[1]->integer > 0;
    switch (node.op) {
    case Op::to_real:
        return Halide::cast<float>(x[0]);
    case Op::negate:
        return -x[0];
    case Op::add:
        return x[0] + x[1];
    case Op::subtract:
        return x[0] - x[1];
    case Op::multiply:
        return x[0] * x[1];
    case Op::divide:
        return divided(x[0], x[1], positive);
    case Op::modulo:
        return remainder(x[0], x[1], positive);
    case Op::minimum:
        return Halide::min(x[0], x[1]);
    case Op::maximum:
        return Halide::max(x[0], x[1]);
    case Op::absolute:
        return Halide::cast(x[0].type(), Halide::abs(x[0])); // of an integer Halide makes an unsigned one
    case Op::floor:
        return rounded_down(x[0]);
    case Op::log:
        return Halide::log(x[0]);
    case Op::sqrt:
        return Halide::sqrt(x[0]);
    default:
        return Expr();
    }
}

Expr logic(const Node &node, const std::vector<Expr> &x) {
    switch (node.op) {
    case Op::select:
        return Halide::select(x[0], x[1], x[2]);
    case Op::less:
        return x[0] < x[1];
    case Op::less_equal:
        return x[0] <= x[1];
    case Op::equal:
        return x[0] == x[1];
    case Op::conjunction:
        return x[0] && x[1];
    case Op::disjunction:
        return x[0] || x[1];
    case Op::negation:
        return !x[0];
    default:
        return Expr();
    }
}

} // namespace

Expr value_of(const Node &node, const ExpressionScope &scope) {
    std::vector<Expr> x;
    for (const NodePtr &arg : node.args) {
        x.push_back(value_of(*arg, scope));
    }
    switch (node.op) {
    case Op::number:
        return number(node);
    case Op::truth:
        return node.integer != 0 ? Halide::Internal::const_true() : Halide::Internal::const_false();
    case Op::variable:
        return variable(static_cast<Variable>(node.index), scope);
    case Op::element:
        return scope.element(node.index, x);
    case Op::source:
        return value_of(*node.source, scope);
    case Op::exp:
        return scope.exp(x[0]);
    case Op::tanh:
        return scope.tanh(x[0]);
    case Op::uniform:
        return scope.uniform(x);
    default:
        break;
    }
    const Expr value = arithmetic(node, x);
    return value.defined() ? value : logic(node, x);
}

} // namespace polyhead::gen::language
