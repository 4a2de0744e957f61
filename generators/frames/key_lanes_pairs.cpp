// Frame "key lanes": sums over pairs of gradients of logits, for a score bias and for slopes. The weights of every tile are made again.
#include "key_lanes_coordinates.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::min;
using Halide::RDom;

namespace {

// The gradients of a tile, added up over what has one element: over its rows, over its keys, or over both.
Expr value_of_tile(PairSums &s, const KeyLanesCoordinates &at, const Expr &kk, const Expr &qi, const std::vector<Expr> &outer) {
    const KeyLanesStages &tiles = s.tiles;
    const auto outside = [&](std::vector<Expr> inner) {
        inner.insert(inner.end(), outer.begin(), outer.end());
        return inner;
    };
    const auto gradient = [&](const Expr &key, const Expr &row) {
        const Expr of_logit = tiles.grad_scores(at.in_tile({key, row}));
        return s.of_slopes ? of_logit * Logits::by_alibi_slope(tiles.bounds.at({row, tiles.qt, tiles.b}, row), at.key(key)) : of_logit;
    };
    if (!s.over_rows && !s.over_keys) {
        return tiles.grad_scores(outside({kk, qi}));
    }
    if (!s.over_rows) {
        s.keys = RDom(0, at.blocking.kv_tile, "summed_keys");
        s.row_sums(at.vars_in_tile({tiles.qi})) = 0.0f;
        s.row_sums(at.vars_in_tile({tiles.qi})) += gradient(s.keys, tiles.qi);
        return s.row_sums(outside({qi}));
    }
    s.rows = RDom(0, at.blocking.q_tile, "summed_rows");
    s.rows.where(tiles.qt * at.blocking.q_tile + s.rows < at.in().seq_len_q);
    s.column_sums(at.vars_in_tile({tiles.kk})) = 0.0f;
    s.column_sums(at.vars_in_tile({tiles.kk})) += gradient(tiles.kk, s.rows);
    if (!s.over_keys) {
        return s.column_sums(outside({kk}));
    }
    s.keys = RDom(0, at.blocking.kv_tile, "summed_keys");
    s.tile_sum(at.vars_in_tile({})) = 0.0f;
    s.tile_sum(at.vars_in_tile({})) += s.column_sums(at.in_tile({s.keys}));
    return s.tile_sum(outer);
}

} // namespace

void define_pair_sums(const AttentionFormulas &formulas, KeyLanesBlocking blocking, const KeyLanesStages &of_rows, PairSums *sums) {
    PairSums &s = *sums;
    KeyLanesStages &tiles = s.tiles;
    blocking.splits = 1;
    tiles.blocking = blocking;
    tiles.head_dim = of_rows.head_dim;
    tiles.head_dim_v = of_rows.head_dim_v;
    tiles.group_size = of_rows.group_size;
    tiles.delta = of_rows.delta;
    tiles.operands = of_rows.operands;
    const KeyLanesCoordinates at{formulas, tiles, tiles.blocking};
    define_numbers_of_rows(tiles, at);
    define_panels(tiles, at);
    define_weights(tiles, at, true);

    const AttentionInputs &in = formulas.inputs();
    const int part = blocking.kv_tile, tile = blocking.q_tile;
    const Expr parts = (in.seq_len_kv + part - 1) / part, row_tiles = (in.seq_len_q + tile - 1) / tile;
    s.padded_keys = s.over_keys ? Expr(1) : parts * part;
    s.padded_rows = s.over_rows ? Expr(1) : row_tiles * tile;
    s.merge = RDom(0, s.over_keys ? 1 : part, 0, s.over_rows ? 1 : tile, 0, row_tiles, 0, in.num_heads / s.heads, 0, in.batch / s.batch, 0,
                   parts, "merge");
    const Expr kk = s.merge[0], qi = s.merge[1], qt = s.merge[2], head = s.h + s.merge[3], b = s.b + s.merge[4], p = s.merge[5];
    const auto last_row = [&](const Expr &row) { return min(row, in.seq_len_q - 1); };
    const Expr first_key = at.first_key(p, 0);
    TileRange(formulas, last_row(qt * tile), last_row(qt * tile + (tile - 1)), b).limit(&s.merge, first_key, first_key + part);
    s.sums(s.kv, s.q, s.h, s.b) = 0.0f;
    s.sums(s.over_keys ? Expr(0) : p * part + kk, s.over_rows ? Expr(0) : qt * tile + qi, s.h, s.b) +=
        value_of_tile(s, at, kk, qi, {qt, head % tiles.group_size, p, 0, head / tiles.group_size, b});
}

std::vector<Halide::Func> PairSums::funcs() const {
    std::vector<Halide::Func> all = tiles.funcs();
    for (const Halide::Func &f : {row_sums, column_sums, tile_sum, sums}) {
        if (f.defined()) {
            all.push_back(f);
        }
    }
    return all;
}

} // namespace polyhead::gen
