// Frame "query lanes" (prefill): a tile of queries side by side, keys and values read in their natural layout as broadcasts.
#pragma once

#include <optional>

#include "attention_stages.h"
#include "seen_keys.h"
#include "transposed.h"

namespace polyhead::gen {

// Blocking numbers of the frame.
struct QueryLanesBlocking {
    int q_tile;                // queries of a tile (lanes)
    int kv_tile;               // keys of a chunk; a multiple of key_panel
    int key_panel;             // keys whose scores are computed together
    int value_panel;           // columns of value accumulated together
    int transpose_bytes;       // tensors over pairs are transposed in blocks of so many bytes along the keys
    int products;              // words of head_dim whose products are added up before they meet the score; divides their number
    LaneProduct query_product; // of query and key, along head_dim, which k divides; rotated ones are floats
    LaneProduct product;       // of probs and value, along the keys; k divides key_panel
    bool cuts_ends;            // acc has parts (TilePart) also where the logits of some keys decide which rows see them
    const Product *tiles;      // of which scores, and probs x values, are made; words have two elements then; null: lanes hold all products
    int64_t fetch_bytes;       // of a call, from which rows are asked from memory before they are needed
    int row_words;             // words of a query row that lie side by side at least, or as many as the lanes of a vector
    int lanes() const { return transpose_bytes / int(sizeof(float)); }
    // Rows of a tile whose sums share a register.
    int tile_lanes() const { return q_tile % lanes() == 0 ? lanes() : q_tile; }
};

// Keys that only one half of a tile of two vectors sees have loops of their own, with half of the multiply-adds: those that only its first
// rows see come first, so that each row adds up its keys in ascending order. Other tiles are not cut.
enum class TilePart { whole, first, both, second };

// The named Funcs, in the order in which a tile is computed. Coordinates: qi = row in tile, qt = tile, kk = key in chunk,
// c = chunk, vp = panel of columns. Of what is in registers: lane and vector of the row, key in panel.
struct QueryLanesStages : MergedRowsStages {
    QueryLanesBlocking blocking;
    int head_dim, head_dim_v, rotary_dim; // rotary_dim 0: nothing is rotated
    // Columns of merged: 0 and on are those of out, in whole panels; before them, in whole panels, too, lie the numbers of a row.
    bool keeps_exact_sum;
    int reference_column() const { return -1; }
    int last_sum_column() const { return -2; }
    int sum_column() const { return keeps_exact_sum ? -3 : -2; }
    int add_column() const { return sum_column() - 1; }
    int keep_column() const { return sum_column() - 2; }
    int number_panels() const { return (blocking.value_panel - 1 - keep_column()) / blocking.value_panel; }
    int value_panels() const { return (head_dim_v + blocking.value_panel - 1) / blocking.value_panel; }
    bool own_lengths; // keys of a batch row end before T_kv
    int page_slots;   // pages of a chunk
    bool finds_clean; // keys are excluded one by one: which chunks of value are without NaN and inf is found out beforehand

    Halide::Var qi{"qi"}, d{"d"}, kk{"kk"}, c{"c"}, qt{"qt"}, h{"h"}, b{"b"}, x{"x"}, hkv{"hkv"}, vector{"vector"}, columns{"columns"},
        word{"word"}, row{"row"}, panel{"panel"}, vp{"value_panel"}, lane{"lane"}, in_panel{"in_panel"}, slot{"slot"};
    Expr last_value_word, value_count, key_count; // the last word of keys; elements of value_words and key_words of a call
    Halide::RDom key_blocks, prob_blocks, float_blocks, keys, chunk_words, special_words;
    Halide::RDom merge;       // of merged: (column in panel, panel, chunk)
    Halide::RDom squares;     // of query_tile: (lane, word in block, block, vector)
    Halide::RDom out_squares; // of out_tile: (column in block, lane, vector, block of columns)
    Halide::RDom rotary, value_rows, value_columns;
    Halide::RDom dropout_groups; // (place, lane, group): the keys of a chunk
    // The updates of scores, over the words of head_dim, and those of acc, over the words of a chunk's keys.
    struct PartLoop {
        TilePart part;
        Halide::RDom domain;
        Halide::Func words; // (panel, c, qt, b), of scores: all words, or none where another part has the panel; undefined where all are
    };
    std::vector<PartLoop> score_loops, acc_loops;
    // The row in the tile of a lane of one of its vectors.
    Expr row_of(const Expr &of_vector) const { return of_vector * blocking.tile_lanes() + lane; }

    RowBounds rows;                                 // (qi, qt, b)
    std::optional<TransposedSquares> query_squares; // (f, block of d, vector of the tile, qt, h, b): query, for transposing
    Halide::Func query_tile{"query_tile"};          // (qi, d, qt, h, b): d counts words
    Halide::Func pages{"pages"};                    // (slot, c, qt, b): of the keys of a chunk; undefined without a table
    Halide::Func key_tile{"key_tile"};              // (d, kk, c, qt, h, b): rotated keys of a chunk; undefined without rotation
    Halide::Func key_words{"key_words"};            // (word, row, hkv, b): keys as tiles read them, once per call
    Halide::Func value_words{"value_words"};        // (d, word of keys, hkv, b): values that share words, once per call
    Halide::Func value_products{"value_products"};  // (qi, d, c, qt, h, b): probs x finite values, where tiles make it
    std::vector<TransposedTile> pair_tiles;         // tiles (qi, kk, c, qt, h, b) of tensors over pairs
    Halide::Func value_bits{"value_bits"};          // (d, c, hkv, b): the largest |value| of a chunk's column, as an integer
    Halide::Func chunk_bits{"chunk_bits"};          // (c, hkv, b): of a chunk
    Halide::Func fetched{"fetched"};             // (panel, c, qt, h, b): 0; with it rows are asked from memory; undefined without tensors
    Halide::Func fetched_pairs{"fetched_pairs"}; // (panel, c, qt, h, b): the same for tensors over pairs; undefined without them
    Halide::Func first_end{"first_end"};         // (qt, b): where the keys end that rows of the first half of a tile see
    Halide::Func second_begin{"second_begin"};   // (qt, b): where those of the second half begin; behind every key where it has no rows
    Halide::Func vectors_with_rows{"vectors_with_rows"}; // (qt, b): of the tile; undefined where all have some
    Halide::Func scores{"scores"};                       // (lane, vector, in_panel, panel, c, qt, h, b); with tiles (qi, kk, c, qt, h, b)
    Halide::Func score_factor{"score_factor"};           // of scores whose query is not scaled
    Halide::Func logits{"logits"};                       // (qi, kk, c, qt, h, b)
    Halide::Func row_max{"row_max"};                     // (qi, c, qt, h, b)
    Halide::Func row_reference{"row_reference"};         // (qi, c, qt, h, b)
    Halide::Func prob_floats{"prob_floats"};             // (qi, kk, c, qt, h, b): where probs share words and their sum is needed exactly
    Halide::Func probs{"probs"};                         // (qi, kk, c, qt, h, b): kk counts words
    Halide::Func dropout_words{"dropout_words"};         // (qi, lane, group, c, qt, h, b): four words
    Halide::Func kept_probs{"kept_probs"};               // (qi, kk, c, qt, h, b): after dropout; undefined without
    Halide::Func row_sum{"row_sum"};                     // (qi, c, qt, h, b): of the probs that values are multiplied by
    Halide::Func exact_sum{"exact_sum"};                 // (qi, c, qt, h, b): of prob_floats
    Halide::Func acc{"acc"};                             // (lane, vector, d in panel, panel of columns, c, qt, h, b), in registers
    Halide::Func merged{"merged"};                       // (qi, x, qt, h, b): all columns
    Halide::Func out_factor{"out_factor"};               // (qi, qt, h, b)
    Halide::Func normalised{"normalised"};               // (qi, d, qt, h, b)
    std::optional<TransposedSquares> normalised_squares; // (f, vector of the tile, block of d, qt, h, b): normalised, for transposing
    Halide::Func out_tile{"out_tile"};                   // (d, qi, qt, h, b): rows of out; undefined where out reads normalised

    void write(const AttentionOut &o, const AttentionFormulas &formulas, const Arguments &at, const Store &store) override;
    std::vector<Halide::Func> funcs() const override;

private:
    Expr out_of(const AttentionFormulas &formulas, const Expr &d, const Expr &q, const Expr &h, const Expr &b) const override;
    Expr reference_of(const Expr &q, const Expr &h, const Expr &b) const override;
    Expr sum_of(const Expr &q, const Expr &h, const Expr &b) const override;
};

QueryLanesStages query_lanes(const AttentionFormulas &formulas, const QueryLanesBlocking &blocking);

} // namespace polyhead::gen
