// The coordinates of the frame "query lanes".
#pragma once

#include "query_lanes.h"

namespace polyhead::gen {

// The coordinates of the frame: clamped positions, and whether the ends of a tile are visible.
struct QueryLanesCoordinates {
    using Expr = Halide::Expr;
    const AttentionFormulas &formulas;
    const QueryLanesBlocking &blocking;

    // Rows beyond the last query repeat it, so that they never require more keys than a real row.
    Expr query(const Expr &qi, const Expr &qt) const { return Halide::min(qt * blocking.q_tile + qi, formulas.inputs().seq_len_q - 1); }
    // Key kk of chunk c of a tile. Chunk 0 is the first that some row of the tile sees, so that Funcs of a chunk have exactly one of it.
    Expr key(const Expr &kk, const Expr &c, const Expr &qt, const Expr &b) const {
        return (first_chunk(qt, b) + c) * blocking.kv_tile + kk;
    }
    // The same where it decides what is computed. Halide 21 cannot solve it for c. From key() it would conclude that Funcs of a chunk have
    // none of it or several, and make their extents, and loops over chunks inside a chunk, at run time.
    Expr key_of_chunk(const Expr &kk, const Expr &c, const Expr &qt, const Expr &b) const {
        return Halide::cast<int32_t>(Halide::cast<uint32_t>(first_chunk(qt, b) + c) * Halide::cast<uint32_t>(blocking.kv_tile)) + kk;
    }
    Expr clamped_key(const Expr &kk, const Expr &c, const Expr &qt, const Expr &b) const {
        return formulas.inputs().keys.row(key(kk, c, qt, b));
    }
    // In a loop that key_of_chunk() ends with the last key that some row sees.
    Expr existing_key(const Expr &kk, const Expr &c, const Expr &qt, const Expr &b) const {
        return formulas.inputs().keys.existing_row(key(kk, c, qt, b));
    }
    Expr first_query(const Expr &qt) const { return query(0, qt); }
    Expr last_query(const Expr &qt) const { return query(blocking.q_tile - 1, qt); }
    TileRange range(const Expr &qt, const Expr &b) const { return {formulas, first_query(qt), last_query(qt), b}; }
    Expr kv_head(const Expr &h) const { return h / formulas.group_size(); }
    // Tiles count chunks from key 0.
    bool skips_chunks() const { return formulas.visibility().has_begin() && !blocking.tiles; }
    Expr first_chunk(const Expr &qt, const Expr &b) const {
        return skips_chunks() ? first_piece(formulas, range(qt, b), blocking.kv_tile) : Expr(0);
    }
    Expr all_chunks() const { return (formulas.inputs().seq_len_kv + blocking.kv_tile - 1) / blocking.kv_tile; }
    // Of a tile.
    Expr most_chunks() const {
        return skips_chunks() ? most_pieces(formulas, all_chunks(), blocking.q_tile, blocking.kv_tile) : all_chunks();
    }
};

// The parts of a tile, in the order of their keys, with the Funcs that tell them apart.
std::vector<TilePart> define_halves(QueryLanesStages &s, const QueryLanesCoordinates &at);
// Whether keys first .. last, of which some row sees one, belong to a part.
Halide::Expr in_part(const QueryLanesStages &s, TilePart part, const Halide::Expr &first, const Halide::Expr &last);
// The vector of the tile that a part computes.
Halide::Expr vector_of(const QueryLanesStages &s, TilePart part);

// The keys of the chunks of a tile. pages = their pages: the table is read once for all keys of a page, and not for each key. Where keys
// are read as words, Halide 21 would look a page up for every word.
KeySource keys_of_chunks(QueryLanesStages &s, const QueryLanesCoordinates &at);

// kept_probs, where weights are dropped.
void define_dropout(QueryLanesStages &s, const QueryLanesCoordinates &at);

// Rows that are asked from memory: fetched, and fetched_pairs where tensors over pairs differ by query. For tensors that kernels read as
// they lie.
void define_fetched(QueryLanesStages &s, const QueryLanesCoordinates &at);

} // namespace polyhead::gen
