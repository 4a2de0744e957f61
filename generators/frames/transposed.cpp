// Transposing by perfect shuffles.
#include "transposed.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::Var;

TransposedTile transpose_tile(const std::string &name, int q_tile, int keys, int blocks, const std::vector<Var> &outer,
                              const std::function<Expr(Expr kk, Expr qi, bool clamped)> &source,
                              const std::function<Expr(Expr behind)> &inside,
                              const std::function<void(RDom *domain, Expr first_key)> &where) {
    TransposedTile t;
    t.blocks = blocks;
    t.q_tile = q_tile;
    t.keys = keys;
    auto at = [&outer](std::vector<Expr> inner) {
        inner.insert(inner.end(), outer.begin(), outer.end());
        return inner;
    };
    const int half = q_tile * keys / 2;
    t.rows = Func(name + "_rows");
    const Halide::Type type = source(t.kk, t.qi, true).type();
    t.loaded = RDom(0, keys, 0, blocks, "loaded");
    where(&t.loaded, t.loaded.y * keys);
    t.rows(at({t.kk, t.qi, t.block})) = Halide::undef(type);
    t.loaded.where(inside(t.loaded.y * keys + keys));
    t.last_loaded = RDom(0, keys, 0, blocks, "last_loaded");
    where(&t.last_loaded, t.last_loaded.y * keys);
    t.last_loaded.where(!inside(t.last_loaded.y * keys + keys));
    t.rows(at({t.loaded.x, t.qi, t.loaded.y})) = source(t.loaded.y * keys + t.loaded.x, t.qi, false);
    t.rows(at({t.last_loaded.x, t.qi, t.last_loaded.y})) = source(t.last_loaded.y * keys + t.last_loaded.x, t.qi, true);
    int shuffles_left = 0;
    while (1 << shuffles_left < q_tile) {
        shuffles_left++;
    }
    // What lies at `place` of half p, before the next shuffle.
    std::function<Expr(Expr p, Expr in_row, Expr row, Expr block)> before = [&](const Expr &p, const Expr &in_row, const Expr &row,
                                                                                const Expr &block) {
        return t.rows(at({in_row, row + p * (q_tile / 2), block}));
    };
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
    t.stored = RDom(0, 2, 0, q_tile / 2, 0, keys, 0, blocks, "stored");
    const Expr half_of = t.stored.x, place = t.stored.y, key = t.stored.z, block = t.stored.w;
    where(&t.stored, block * keys);
    t.transposed = Func(name + "_tile");
    t.transposed(at({t.qi, t.kk})) = Halide::undef(type);
    t.transposed(at({2 * place + half_of, block * keys + key})) = before(half_of, q_tile == 2 ? key : key * (q_tile / 2) + place, 0, block);
    return t;
}

std::vector<Func> TransposedTile::funcs() const {
    std::vector<Func> all = {rows};
    all.insert(all.end(), shuffles.begin(), shuffles.end());
    all.push_back(transposed);
    return all;
}

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

Expr first_of(const Expr &block, int count, int side) {
    return count % side == 0 ? block * side : Halide::min(block * side, count - side);
}

std::vector<Func> TransposedSquares::funcs() const {
    std::vector<Func> all = {rows};
    all.insert(all.end(), shuffles.begin(), shuffles.end());
    return all;
}

} // namespace polyhead::gen
