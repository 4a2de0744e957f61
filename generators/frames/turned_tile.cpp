// Turning a tile by perfect shuffles.
#include "turned_tile.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::Var;

TurnedTile turn(const std::string &name, int q_tile, int keys, const std::vector<Var> &outer,
                const std::function<Expr(Expr kk, Expr qi)> &source) {
    TurnedTile t;
    t.q_tile = q_tile;
    t.keys = keys;
    auto at = [&outer](std::vector<Expr> inner) {
        inner.insert(inner.end(), outer.begin(), outer.end());
        return inner;
    };
    const int half = q_tile * keys / 2;
    t.rows = Func(name + "_rows");
    t.rows(at({t.kk, t.qi, t.block})) = source(t.block * keys + t.kk, t.qi);
    int shuffles_left = 0;
    while (1 << shuffles_left < q_tile) {
        shuffles_left++;
    }
    // What lies at `place` of half p, before the next shuffle.
    std::function<Expr(Expr p, Expr in_row, Expr row, Expr block)> before = [&](const Expr &p, const Expr &in_row, const Expr &row,
                                                                                const Expr &block) {
        return t.rows(at({in_row, row + p * (q_tile / 2), block}));
    };
    const Halide::Type type = source(t.kk, t.qi).type();
    for (; shuffles_left > 1; shuffles_left--) {
        const RDom r(0, 2, 0, keys, 0, q_tile / 2, "shuffle");
        Func next(name + "_shuffle" + std::to_string(shuffles_left));
        next(at({t.f, t.block})) = Halide::undef(type);
        next(at({2 * (r.z * keys + r.y) + r.x, t.block})) = before(r.x, r.y, r.z, t.block);
        before = [=](const Expr &p, const Expr &in_row, const Expr &row, const Expr &block) {
            return next(at({p * half + row * keys + in_row, block}));
        };
        t.shuffles.push_back(next);
        t.domains.push_back(r);
    }
    // The last one stores where the tile is read: place 2 y + x of key kk.
    const RDom r(0, 2, 0, q_tile / 2, "last_shuffle");
    t.tile = Func(name + "_tile");
    t.tile(at({t.qi, t.kk})) = Halide::undef(type);
    const Expr place = t.kk % keys * (q_tile / 2) + r.y;
    t.tile(at({2 * r.y + r.x, t.kk})) = q_tile == 2 ? before(r.x, place % keys, place / keys, t.kk / keys)
                                                    : before(r.x, place, 0, t.kk / keys);
    t.domains.push_back(r);
    return t;
}

std::vector<Func> TurnedTile::funcs() const {
    std::vector<Func> all = {rows};
    all.insert(all.end(), shuffles.begin(), shuffles.end());
    all.push_back(tile);
    return all;
}

} // namespace polyhead::gen
