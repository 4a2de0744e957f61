// Frame "head lanes" (decode): few queries; lanes run along head_dim, the rows of a head group share one pass over the keys.
#pragma once

#include "seen_keys.h"

namespace polyhead::gen {

// Blocking numbers of the frame.
struct HeadLanesBlocking {
    int lanes;      // entries of head_dim side by side; divides head_dim and head_dim_v
    int row_tile;   // rows (query of one head of the group) that share a pass
    int split_len;  // keys of a split, a multiple of key_unroll and lanes
    int key_unroll; // keys whose dot products are computed together
};

// Coordinates: r = row in tile, rt = tile of rows, kk = key in split, sp = split, hkv = key/value head. Row R = rt * row_tile + r
// is query R / group_size of head hkv * group_size + R % group_size.
struct HeadLanesStages {
    HeadLanesBlocking blocking;
    int head_dim_v, group_size, rotary_dim; // rotary_dim 0: nothing is rotated

    Halide::Var l{"l"}, d{"d"}, r{"r"}, kk{"kk"}, sp{"sp"}, rt{"rt"}, hkv{"hkv"}, b{"b"}, x{"x"};
    Halide::RDom rv, rl, key_blocks, keys, splits, rotary;
    TileKeys value_keys;

    RowFacts row_facts;                          // (r, rt, b)
    Halide::Func query_rows{"query_rows"};       // (d, r, rt, hkv, b)
    Halide::Func key_rows{"key_rows"};           // (d, kk, sp, rt, hkv, b): rotated keys; undefined without rotation
    Halide::Func lane_scores{"lane_scores"};     // (l, r, kk, sp, rt, hkv, b)
    Halide::Func scores{"scores"};               // (r, kk, sp, rt, hkv, b)
    Halide::Func row_scores{"row_scores"};       // (kk, r, sp, rt, hkv, b): scores along keys; undefined where logits are scores
    Halide::Func logits{"logits"};               // (kk, r, sp, rt, hkv, b)
    Halide::Func row_max{"row_max"};             // (r, sp, rt, hkv, b)
    Halide::Func row_reference{"row_reference"}; // (r, sp, rt, hkv, b)
    Halide::Func probs{"probs"};                 // (kk, r, sp, rt, hkv, b)
    Halide::Func row_sum{"row_sum"};             // (r, sp, rt, hkv, b)
    Halide::Func acc{"acc"};                     // (d, r, sp, rt, hkv, b)
    Halide::Func partial{"partial"};             // (x, r, sp, rt, hkv, b): columns acc, row_sum, row_reference
    Halide::Func reference{"reference"};         // (r, rt, hkv, b)
    Halide::Func merged{"merged"};               // (x, r, rt, hkv, b): columns acc, row_sum

    // Row q of head h: column d of out before the factor of its end, and its statistics.
    Halide::Expr acc_of(const Halide::Expr &d, const Halide::Expr &q, const Halide::Expr &h, const Halide::Expr &b) const;
    Halide::Expr reference_of(const Halide::Expr &q, const Halide::Expr &h, const Halide::Expr &b) const;
    Halide::Expr sum(const Halide::Expr &q, const Halide::Expr &h, const Halide::Expr &b) const;

    // Every Func, producers first.
    std::vector<Halide::Func> funcs() const;
};

HeadLanesStages head_lanes(const AttentionFormulas &formulas, const HeadLanesBlocking &blocking);

} // namespace polyhead::gen
