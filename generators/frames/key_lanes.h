// Frame "key lanes" (gradients): keys of a part side by side, queries and gradients read in their natural layout as broadcasts and rows.
#pragma once

#include <optional>

#include "../formulas.h"
#include "../head_gradients.h"
#include "../products.h"
#include "seen_keys.h"
#include "transposed.h"

namespace polyhead::gen {

// Blocking numbers of the frame.
struct KeyLanesBlocking {
    int q_tile;       // queries of a tile; a multiple of score_rows and grad_rows
    int kv_tile;      // keys of a part; a multiple of key_panel and grad_rows
    int score_rows;   // queries whose scores are computed together
    int key_panel;    // keys whose scores are computed together; a multiple of lanes
    int grad_rows;    // rows of gradients whose sums share registers
    int grad_columns; // columns of them; a multiple of lanes
    int splits;       // tasks that take the parts of a head in turns
    int lanes;
    bool fused; // a product and its sum are one instruction
    int width;  // columns of all gradients, in whole grad_columns; rows that are read have so many, or head_dim and head_dim_v
    int words;  // of a row of key_panels, in whole squares of lanes
    int panels() const { return kv_tile / key_panel; }
    int column_blocks() const { return width / grad_columns; }
    // Register tiles of gradients of a part and a tile: of value, then of key, then of query.
    int key_tiles() const { return kv_tile / grad_rows; }
    int query_tiles() const { return q_tile / grad_rows; }
    // And, behind them, of tensors of an expression.
    int table_tiles = 0;
    int tiles() const { return 2 * key_tiles() + query_tiles() + table_tiles; }
};

// The gradients of the pairs of a head that read a tensor of the expression in one place of its text, added up as far as they share an
// element: a line of sums for each head. A tile adds a line of its own, which is a piece of it.
struct TableLine {
    language::TableRead read;
    int factor = 0, gradient = 0;       // which values of weights and grad_scores are the derivative of the logit, 0: 1, and the gradients
    int elements, rows;                 // of a tile, and of rows of sums for them
    int first_row = 0;                  // in table_rows
    Halide::Expr first_row_of_head;     // of the line of a head, in sums
    Halide::RDom pairs, shares, copied; // of sums, parts and table_rows
    Halide::Func parts{"table_parts"};  // (lane, qi, in tile): sums of keys side by side, where elements follow queries
    Halide::Func sums{"table_line"};    // (element, in tile), behind a row of zeros and before one
};

// What is multiplied: words of as many neighbouring entries of a row as a lane multiplies at once, and words of an entry of as many
// neighbouring rows. Entries and rows that do not exist are 0 in a word with one that does.
struct KeyLanesOperands {
    LaneProduct product;
    KeySource::Element query, grad_out, key, value;         // (word of entries, row, head, batch row)
    KeySource::Element query_rows, grad_out_rows, key_rows; // (d, word of rows, head, batch row)
};

// The named Funcs, in the order in which a part is computed. Coordinates: kk = key in part, p = part of a split, sp = split, qi = query in
// tile, qt = tile, g = head in group, h = key/value head. Of registers: lane = key in panel, row = query in group of rows or row of a tile
// of gradients, t = tile of gradients.
struct KeyLanesStages {
    KeyLanesBlocking blocking;
    KeyLanesOperands operands;
    int head_dim, head_dim_v;
    Halide::Expr num_kv_heads, batch, group_size, seq_len_q, seq_len_kv, rows; // rows: of `sums`, for a split of a head

    Halide::Var x{"x"}, d{"d"}, lane{"lane"}, row{"row"}, panel{"panel"}, group{"group"}, kk{"kk"}, qi{"qi"}, qt{"qt"}, g{"g"}, p{"p"},
        sp{"sp"}, h{"h"}, b{"b"}, q{"q"}, kv{"kv"}, t{"t"}, vector{"vector"}, block{"block"}, kind{"kind"};

    Halide::RDom delta_entries;                        // of delta_rows: (column, block of columns)
    Halide::RDom magnitude_words;                      // of row_magnitude
    Halide::RDom squares;                              // of key_panels: (lane, column, block of columns, vector, panel)
    Halide::RDom weight_rows, logit_rows;              // (key in panel, row in group, group of rows, panel)
    Halide::RDom weight_pairs, score_pairs, row_pairs; // the same: (key in panel, word of rows in group, group of rows, panel)
    Halide::RDom key_words, value_words, score_words, grad_words;
    Halide::RDom merge;                 // of sums: (column, row, block of columns, tile, qt, g, p)
    std::vector<Halide::RDom> products; // of tile_sums: value, key, query; then the same where something is not finite

    std::optional<TransposedSquares> grad_out_squares, out_squares;
    Halide::Func delta_rows{"delta_rows"}; // (lane, square of rows, h, b): sum of grad_out * out
    Halide::Func delta{"delta"};           // (q, h, b): the same
    Halide::Func row_magnitude{
        "row_magnitude"}; // (q, h, b): largest |query|, |grad_out| as an integer; undefined where no pair is excluded
    RowBounds bounds;     // (qi, qt, b)
    Halide::Func row_reference{"row_reference"}; // (qi, qt, g, h, b): lse in the unit of logits
    Halide::Func row_delta{"row_delta"};         // (qi, qt, g, h, b)
    std::optional<TransposedSquares> key_squares, value_squares;
    Halide::Func key_panels{"key_panels"};       // (lane, word, panel, p, sp, h, b): floats are in the unit of scores
    Halide::Func value_panels{"value_panels"};   // the same
    Halide::Func score_factor{"score_factor"};   // brings scores of words as they are stored into their unit; undefined for floats
    Halide::Func key_magnitude{"key_magnitude"}; // (p, sp, h, b): largest |key| of a part as an integer; undefined as row_magnitude

    std::vector<Halide::Func> pairs;           // (kk, qi, qt, g, p, sp, h, b): tensors over pairs
    std::vector<Halide::RDom> pair_blocks;     // two of each: (key in block, block), inside of the keys and at their end
    Halide::Func scores{"scores"};             // (lane, row, panel, group, qt, g, p, sp, h, b)
    Halide::Func grad_weights{"grad_weights"}; // the same: grad_out . value
    Halide::Func weights{"weights"};           // (kk, qi, qt, g, p, sp, h, b); with slopes of logits beside them where those are not 1
    Halide::Func grad_scores{"grad_scores"};   // the same
    // As words, where these are not floats: (kk, word of rows, ...) twice, and elements (kk, qi, ...), of which neighbours are a word.
    Halide::Func weight_words{"weight_words"}, grad_score_words{"grad_score_words"}, grad_score_rows{"grad_score_rows"};
    Halide::Func tile_magnitude{
        "tile_magnitude"};                 // (qt, g, p, sp, h, b): the largest of all that is multiplied; undefined as row_magnitude
    Halide::Func first_turn{"first_turn"}; // (t, qt, p, sp, b): where the products of a tile begin
    Halide::Func turns_end{"turns_end"};   // (kind, t, qt, g, p, sp, h, b): where they end, 0 for kinds that the tile is not
    Halide::Func tile_sums{"tile_sums"};   // (x, row, block, t, qt, g, p, sp, h, b), in registers
    Halide::Func sums{"sums"};             // (x, row, sp, h, b): gradients of value, key and query, one after another
    // (d, token, h, b): gradients of the rows that attention read, and of what these were made of; results.
    KeySource::Element query_sums, key_sums, value_sums;
    HeadGradient of_query, of_key, of_value;
    Halide::Func grad_query, grad_key, grad_value;
    bool read_on = false; // these are intermediates of a layer, and not results

    Halide::RDom dropout_groups;                 // (lane, place, group, row): the pairs of a tile
    Halide::RDom kept_rows;                      // (key in part, row)
    Halide::Func dropout_words{"dropout_words"}; // (lane, group, qi, qt, g, p, sp, h, b): four words
    Halide::Func dropout{"dropout"};             // (kk, qi, qt, g, p, sp, h, b): 0, or what a weight is multiplied by; undefined without
    Halide::Func kept_weights{"kept_weights"};   // the same: weights after dropout

    std::vector<TableLine> tables;
    Halide::Expr table_rows_of_head; // of sums
    Halide::Var element{"element"};
    Halide::RDom shifted_pairs;            // (key in part, row)
    Halide::Func shifted{"shifted"};       // (key in part, row, in tile): gradients with zeros beside them, for sums along diagonals
    Halide::Func table_rows{"table_rows"}; // (x, row of all lines, in tile): a tile's lines, as they lie in sums
    Halide::Func table_sums{"table_sums"}; // (x, row, h, b): lines of heads

    bool has_slopes = false;
    std::vector<Halide::Func> funcs() const;
};

// How many elements the line of a head has, and one of them, of table_sums. head: of all.
Halide::Expr line_elements(const AttentionFormulas &formulas, const KeyLanesStages &stages, const TableLine &line);
Halide::Expr line_element(const KeyLanesStages &stages, const TableLine &line, const Halide::Expr &element, const Halide::Expr &head,
                          const Halide::Expr &b);
// The indices of the tensor, outermost first, at which the element of a line was read.
std::vector<Halide::Expr> line_indices(const AttentionFormulas &formulas, const KeyLanesStages &stages, const TableLine &line,
                                       const Halide::Expr &element, const Halide::Expr &head, const Halide::Expr &b);

// Sums over pairs of gradients of logits, for tensors that are added to logits: over rows, over keys, over heads and batch rows where the
// tensor has one element for all of them.
struct PairSums {
    bool over_rows = false, over_keys = false, of_slopes = false; // of_slopes: times the distance of a pair
    Halide::Expr heads, batch;                                    // that the tensor has: 1, or those of the call
    Halide::Var kv{"kv"}, q{"q"}, h{"h"}, b{"b"};
    KeyLanesStages tiles; // as far as grad_scores, which are gradients of logits
    Halide::RDom rows, keys;
    Halide::RDom merge; // (key in part, row in tile, tile, head, batch row, part)
    Halide::Expr padded_keys, padded_rows;
    Halide::Func row_sums{"row_sums"}, column_sums{"column_sums"}, tile_sum{"tile_sum"}; // of a tile; undefined where there are none
    Halide::Func sums{"pair_sums"};                                                      // (kv, q, h, b)
    std::vector<Halide::Func> funcs() const;
};
// of_rows: whose delta they share.
void define_pair_sums(const AttentionFormulas &formulas, KeyLanesBlocking blocking, const KeyLanesStages &of_rows, PairSums *sums);

// The sums of all gradients.
KeyLanesStages key_lanes(const AttentionFormulas &formulas, const KeyLanesBlocking &blocking, const KeyLanesOperands &operands);

} // namespace polyhead::gen
