// Frame "head lanes" (decode): few queries; lanes run along head_dim, the rows of a head group share one pass over the keys.
#pragma once

#include <array>

#include "attention_stages.h"
#include "seen_keys.h"

namespace polyhead::gen {

// Blocking numbers of the frame.
struct HeadLanesBlocking {
    int lanes;                      // entries of head_dim side by side, at most head_dim and head_dim_v
    int row_tile;                   // rows (query of one head of the group) that share a pass
    int split_len;                  // keys of a split, a multiple of key_unroll and lanes
    int key_unroll;                 // keys whose dot products are computed together
    int keys_side_by_side;          // keys of a vector; divides split_len
    std::array<int, 2> fetch_ahead; // bytes ahead of which rows are asked from memory, the furthest first; 0: once is enough
    bool words;              // bf16: two neighbouring entries are loaded as one word, whose halves become floats with one instruction each
    const Product *pairs;    // of words of query and key as they are; null: they become floats
    const Product *integers; // of keys of int8 and a query of integers; null: they become floats
    int integer_lanes;       // their sums side by side
};

// A row of entries as vectors. Where lanes do not divide it, the last vector begins earlier and repeats entries of the one before, so that
// nothing behind the row is read. A column counts lanes of vectors: a repeated entry has two.
struct Vectors {
    int width = 0, lanes = 1;

    int count() const { return (width + lanes - 1) / lanes; }
    int repeated() const { return count() * lanes - width; }
    Halide::Expr entry(const Halide::Expr &vector, const Halide::Expr &lane) const {
        return repeated() == 0 ? lane + lanes * vector : lane + min(lanes * vector, width - lanes);
    }
    // Whether this lane is the first with its entry.
    Halide::Expr first(const Halide::Expr &vector, const Halide::Expr &lane) const { return vector < count() - 1 || lane >= repeated(); }
    // The last column with an entry.
    Halide::Expr column(const Halide::Expr &entry) const {
        return repeated() == 0 ? entry : entry + select(entry < lanes * (count() - 1), 0, repeated());
    }
};

// Coordinates: r = row in tile, rt = tile of rows, kk = key in split, sp = split (0: the first that the batch row sees a key of),
// hkv = key/value head, task = a split of a key/value head of a batch row. Row R = rt * row_tile + r
// is query R / group_size of head hkv * group_size + R % group_size.
struct HeadLanesStages : MergedRowsStages {
    HeadLanesBlocking blocking;
    int head_dim_v, rotary_dim; // rotary_dim 0: nothing is rotated
    Halide::Expr group_size;
    Vectors key_vectors, value_vectors; // of floats
    int page_slots;                     // pages that a split and the keys asked for ahead touch at most

    Halide::Var l{"l"}, part{"part"}, d{"d"}, r{"r"}, kk{"kk"}, rt{"rt"}, task{"task"}, page_slot{"page_slot"}, hkv{"hkv"}, b{"b"}, x{"x"};
    Halide::RDom rv, rl, rd, key_blocks, keys, halves, columns, splits, rotary, slots;
    TileKeys value_keys;
    // keys: (key in vector, vector) of a split, of vectors of which some row sees a key.
    Halide::Expr key_in_split() const { return keys.x + blocking.keys_side_by_side * keys.y; }
    Halide::Expr rows_of_call; // queries of all heads and batch rows

    RowBounds row_bounds;                        // (r, rt, task)
    Halide::Func query_rows{"query_rows"};       // (d, r, rt, task)
    Halide::Func query_columns{"query_columns"}; // (column, r, rt, task): query_rows, repeated entries 0; undefined where none is
    Halide::Func query_parts{"query_parts"};     // (l, part, r, rt, task): entry 2 l + part of query_rows; where keys are read as words
    Halide::Func query_words{"query_words"};     // (l, r, rt, task): words of query as it is stored; where words are multiplied
    Halide::Func score_factor{"score_factor"};   // of their scores
    Halide::Func query_largest{"query_largest"}; // (r, rt, task): the largest |entry| of a query; undefined without integers
    Halide::Func query_poison{"query_poison"};   // (r, rt, task): NaN where an entry is not finite, otherwise 0
    Halide::Func query_step{"query_step"};       // (r, rt, task): what 1 of a query of integers is worth; undefined without integers
    Halide::Func query_shorts{"query_shorts"};   // (d, r, rt, task): query in steps
    Halide::Func query_bytes{"query_bytes"};     // (l, r, rt, task): query in steps, in words of bytes
    Halide::Func query_sums{"query_sums"};       // (l, r, rt, task): 128 times the sums of these entries, by lane
    Halide::Func pages{"pages"};                 // (page_slot, task): of the keys of a split, and of those asked for ahead
    Halide::Func key_rows{"key_rows"};           // (d, kk, rt, task): rotated keys; undefined without rotation
    Halide::Func fetched_keys{"fetched_keys"};   // (kk, rt, task): 0; with it a row is asked from memory
    Halide::Func fetched_first{"fetched_first"}; // (vector of keys, r, rt, task): 0; with it the first values are asked
    std::vector<Halide::Func> fetched_values;    // the same for each loop over the keys of values
    Halide::Func lane_scores{"lane_scores"};     // (l, r, kk, rt, task)
    Halide::Func scores{"scores"};               // (r, kk, rt, task)
    Halide::Func row_scores{"row_scores"};       // (kk, r, rt, task): scores along keys; undefined where logits are scores
    Halide::Func key_scales{"key_scales"};       // (kk, rt, task): of the rows of an int8 cache; undefined where keys have none, or several
    Halide::Func value_scales{"value_scales"};   // (kk, rt, task)
    Halide::Func logits{"logits"};               // (kk, r, rt, task)
    Halide::Func row_max{"row_max"};             // (r, rt, task)
    Halide::Func row_reference{"row_reference"}; // (r, rt, task)
    Halide::Func probs{"probs"};                 // (kk, r, rt, task)
    Halide::Func weights{"weights"};             // (kk, r, rt, task): probs * value_scales
    Halide::Func row_sum{"row_sum"};             // (r, rt, task)
    Halide::Func acc{"acc"};                     // (d, r, rt, task); with words (l, part, r, rt, task): column 2 l + part
    Halide::Func acc_columns{"acc_columns"};     // (d, r, rt, task); undefined without words
    Halide::Func partial{"partial"};             // (x, r, rt, task): columns acc, row_sum, row_reference
    Halide::Func reference{"reference"};         // (r, rt, hkv, b)
    Halide::Func sums{"sums"};                   // (x, r, rt, hkv, b): columns acc, row_sum
    Halide::Func merged{"merged"};               // (x, r, rt, hkv, b): columns acc, row_sum, reference

    bool writes_one_output() const override { return false; }
    std::vector<Halide::Func> funcs() const override;

private:
    Expr out_of(const AttentionFormulas &formulas, const Expr &d, const Expr &q, const Expr &h, const Expr &b) const override;
    Expr reference_of(const Expr &q, const Expr &h, const Expr &b) const override;
    Expr sum_of(const Expr &q, const Expr &h, const Expr &b) const override;
    Expr merged_column(const Expr &column, const Expr &q, const Expr &h, const Expr &b) const;
};

HeadLanesStages head_lanes(const AttentionFormulas &formulas, const HeadLanesBlocking &blocking);

} // namespace polyhead::gen
