// Frames of a GPU: query rows held by threads, a running softmax over chunks of keys.
//
// "thread rows": a thread (or a few lanes of a warp, each with its part of head_dim) makes scores, probs and sums of its own rows, all in
// registers. "block tiles": chunks of key and value are in shared memory for the whole block, and the scores of a chunk are spread over its
// threads. "split rows", "split tiles" (decode): the same over splits of the keys, whose partial results are merged (split_rows.cpp). The
// rows of a tile are then queries of all heads of a group, so that a key is read once for them.
#pragma once

#include "../../plan/frames/rows.h"
#include "attention_stages.h"
#include "seen_keys.h"

namespace polyhead::gen {

// Blocking numbers of both frames.
struct RowsBlocking {
    int rows;            // query rows of a thread
    int groups;          // threads over the rows of a block: a tile has groups * rows queries
    int lanes;           // threads that share a row
    int vec;             // neighbouring entries of head_dim that stay in one thread
    int kv_tile;         // keys of a chunk
    int masked_kv_tile;  // thread rows: of a chunk that some rows see only in part, where masks take registers; divides kv_tile
    bool block_tiles;    // otherwise thread rows
    int split_len = 0;   // keys of a split; 0: there are no splits
    int merge_lanes = 1; // with splits: partial merges of a row side by side

    bool splits() const { return split_len > 0; }
    // Thread rows with splits: all groups have the same rows, and every groups-th chunk of the split.
    bool shares_keys() const { return splits() && !block_tiles; }
    int key_groups() const { return shares_keys() ? groups : 1; }
    int tile_rows() const { return shares_keys() ? rows : rows * groups; }
};

// What is made of one chunk of keys. Coordinates: r = row in thread, l = lane, g = thread over rows, qt = tile, qi = g * rows + r,
// kk = key in chunk, c = chunk, x = entry of head_dim in a lane, sp = split (0 where there are none), h = head, with splits the key/value
// head. Thread rows: (kk, r, c, l, g, qt, sp, h, b), or without kk, but for key_rows and value_rows. Block tiles:
// (kk, qi, c, qt, sp, h, b), or without kk, but for those whose coordinates are given.
struct ChunkStages {
    explicit ChunkStages(const std::string &kind);

    int kv_tile;            // keys of a chunk
    Halide::Expr first_key; // of the chunks that pass here, for (qt, sp, b); c counts from it
    bool masked;            // some rows may not see some of the keys
    Halide::RDom domain;    // (column of acc, chunk)
    Halide::RDom rd, keys;
    TileKeys value_keys; // block tiles

    Halide::Func key_rows, value_rows;   // thread rows: (x, kk, c, l, g, qt, sp, h, b), a lane's entries
    Halide::Func key_chunk, value_chunk; // block tiles: (d, kk, c, qt, sp, h, b); value_chunk is undefined where key_chunk has the values
    Halide::Func dot;                    // scores, or a lane's part of them
    Halide::Func logits, row_max, row_reference, probs, row_sum;
    Halide::Func chunk_acc; // block tiles: (x, r, c, l, g, qt, sp, h, b)
};

// What becomes of the splits of a row: row = of all queries and heads of a group, m = lane of the merge. The first two merge what the
// groups of a warp have of a split; they are undefined where one has all of it.
struct MergeStages {
    Halide::Var x{"x"}, row{"row"}, m{"m"};
    Halide::RDom lane_splits, lanes;
    Halide::Func group_reference{"group_reference"}; // (r, l, g, qt, sp, h, b)
    Halide::Func of_groups{"of_groups"};             // (x, r, l, g, qt, sp, h, b): a lane's entries, row_sum
    Halide::Func partial{"partial"};                 // (x, row, sp, h, b): columns acc, row_sum, reference
    Halide::Func lane_reference{"lane_reference"};   // (m, q, h, b): of splits m, m + lanes, ...
    Halide::Func lane_sum{"lane_sum"};               // (m, q, h, b)
    Halide::Func lane_acc{"lane_acc"};               // (x, m, q, h, b)
    Halide::Func reference{"reference"};             // (q, h, b)
    Halide::Func lane_weight{"lane_weight"};         // (m, q, h, b)
    Halide::Func row_sum{"merged_sum"};              // (q, h, b)
    Halide::Func acc{"merged_acc"};                  // (x, q, h, b)

    std::vector<Halide::Func> funcs() const; // those that are there, producers first
};

struct RowsStages : AttentionStages {
    RowsBlocking blocking;
    int head_dim, head_dim_v;
    int query_entries, value_entries; // of a lane; the last ones of a lane may lie beyond head_dim
    bool whole_pieces;                // none do: pieces of vec entries lie side by side in memory
    int stat_columns;                 // columns of acc before its entries: reference before the chunk, reference, row_sum, padding

    Halide::Var x{"x"}, r{"r"}, l{"l"}, g{"g"}, kk{"kk"}, c{"c"}, qt{"qt"}, sp{"sp"}, h{"h"}, b{"b"}, qi{"qi"}, d{"d"};
    RowBounds row_bounds;                  // (r, g, qt, b)
    Halide::Func query_rows{"query_rows"}; // thread rows: (x, r, l, g, qt, h, b)
    std::vector<ChunkStages> chunks;       // thread rows: whole chunks, then partial ones; block tiles: all
    Halide::Func acc{"acc"};               // (x, r, l, g, qt, sp, h, b): the running softmax of a row, a lane's entries of it
    MergeStages merge;                     // with splits

    // Writes the columns of out in the frame's own coordinates: a thread's place is then exact, where the quotients and remainders of
    // (d, q) would look like the whole tile to bounds inference.
    void write(const AttentionOut &out, const AttentionFormulas &formulas, const Arguments &at, const Store &store) override;
    Halide::RDom written;               // (entry, row in thread, lane, group, tile), and with splits the split
    int entry_count(int columns) const; // of a lane, of so many columns of a row
    Halide::Expr column(const Halide::Expr &x, const Halide::Expr &l) const; // where entry x of lane l lies

    std::vector<Halide::Func> funcs() const override;
};

RowsStages rows_frame(const AttentionFormulas &formulas, const RowsBlocking &blocking);
// Columns of acc before its entries.
enum AccColumn { before_column, reference_column, sum_column, num_stats };
// With splits: their partial results, what these are merged to, and an element of out or a statistic beside it.
void define_partial(RowsStages &stages, const AttentionFormulas &formulas);
void define_merge(RowsStages &stages, const AttentionFormulas &formulas, const AttentionOut &out);
Halide::Expr write_merged(const RowsStages &stages, const AttentionFormulas &formulas, const AttentionOut &out);

} // namespace polyhead::gen
