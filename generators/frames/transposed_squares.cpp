// Transposing squares by perfect shuffles.
#include "transposed_squares.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::Var;

TransposedSquares transpose_squares(const std::string &name, int side, int columns, const std::vector<Var> &outer,
                                    const std::function<Expr(Expr column, Expr row)> &source) {
    TransposedSquares t;
    t.side = side;
    t.columns = columns;
    auto at = [&outer](std::vector<Expr> inner) {
        inner.insert(inner.end(), outer.begin(), outer.end());
        return inner;
    };
    t.rows = Func(name + "_rows");
    t.rows(at({t.f, t.block})) = source(t.first_column(t.block) + t.f % side, t.f / side);
    const Halide::Type type = t.rows.value().type();
    const int half = side * side / 2;
    Func before = t.rows;
    for (int shuffled = 1; shuffled < side; shuffled *= 2) {
        const RDom r(0, 2, 0, side, 0, side / 2, "shuffle");
        Func next(name + "_shuffle" + std::to_string(shuffled));
        next(at({t.f, t.block})) = Halide::undef(type);
        next(at({2 * (r.z * side + r.y) + r.x, t.block})) = before(at({r.x * half + r.z * side + r.y, t.block}));
        t.shuffles.push_back(next);
        t.domains.push_back(r);
        before = next;
    }
    return t;
}

Expr TransposedSquares::first_column(const Expr &block) const {
    return columns % side == 0 ? block * side : Halide::min(block * side, columns - side);
}

std::vector<Func> TransposedSquares::funcs() const {
    std::vector<Func> all = {rows};
    all.insert(all.end(), shuffles.begin(), shuffles.end());
    return all;
}

} // namespace polyhead::gen
