// Which keys the rows of a tile see: bounds of the tile, loops over its keys, and what a frame keeps of each row.
#pragma once

#include <functional>

#include "../formulas.h"
#include "../products.h"

namespace polyhead::gen {

// The ends of what the rows of a tile see. begin_* are undefined where every row begins at key 0. They are expressions of the first and
// the last row; as Funcs they would relax the loops that they end (docs/internals/schedules.md, section 6, trap 7).
struct TileRange {
    Halide::Expr begin_some, begin_all, end_all, end_some;

    TileRange(const AttentionFormulas &formulas, const Halide::Expr &first_query, const Halide::Expr &last_query, const Halide::Expr &b);
    // Leaves a domain of keys, or of blocks of keys, where no row sees any: `first` to before `behind` are the keys of one.
    void limit(Halide::RDom *domain, const Halide::Expr &first, const Halide::Expr &behind) const;
};

// Keys are cut into pieces (chunks, splits) at multiples of a length. The first piece that some row sees a key of, and how many from there
// on `rows` neighbouring rows see at most: all, or those that their windows reach together.
Halide::Expr first_piece(const AttentionFormulas &formulas, const TileRange &range, int length);
Halide::Expr most_pieces(const AttentionFormulas &formulas, const Halide::Expr &all, const Halide::Expr &rows, int length);

// Keys in splits of a length, whose partial results are merged. Split 0 of a batch row is the first that one of its queries sees a key of,
// so that a window costs its own length. Borders stay multiples of the length, whatever else is in the call.
struct KeySplits {
    const AttentionFormulas &formulas;
    int length;

    // Keys that some query of the batch row sees.
    TileRange whole_range(const Halide::Expr &b) const { return {formulas, 0, formulas.inputs().seq_len_q - 1, b}; }
    // Which piece of all keys split sp is, and its first key.
    Halide::Expr piece(const Halide::Expr &sp, const Halide::Expr &b) const { return first_piece(formulas, whole_range(b), length) + sp; }
    Halide::Expr first_key(const Halide::Expr &sp, const Halide::Expr &b) const { return piece(sp, b) * length; }
    // Of a batch row, at most; at least 1, so that Halide can bound a remainder.
    Halide::Expr count() const;
};

// Keys first .. first + length - 1 as seen by a tile of rows, in ascending order: below those that every row sees, those, and above; where
// several keys share a word, whole words. `whole` may hold a word that reaches beyond the last key where rows do not differ.
// Of low and high every key may be excluded in some rows. Where tensors or an expression exclude keys one by one, all keys are among
// them, except in a chunk without NaN, which `clean` tells (undefined: no chunk). mostly_whole: the loop over `whole` is worth a copy of
// its own for keys that need no look at its end.
struct TileKeys {
    Halide::RDom low, whole, high;
    bool has_low = false, has_high = false;
    Halide::Expr first; // key of the first word
    int pair = 1;
    TileKeys() = default;
    TileKeys(const AttentionFormulas &formulas, int length, const Halide::Expr &first_key, const TileRange &range,
             const Halide::Expr &clean = Halide::Expr(), int keys_of_word = 1, bool mostly_whole = false);
    // Only where this holds of the first and the last key of a word is the word there.
    void where(const std::function<Halide::Expr(const Halide::Expr &, const Halide::Expr &)> &condition);
    // The loops that exist, in order; only `whole` does not test the logit.
    std::vector<const Halide::RDom *> loops() const;
    // acc after a key of one of the loops. A row must not use the value of a key that it does not see, because it may be NaN. Where
    // that is possible, the key's logit decides; elsewhere the prob, 0, is enough. Selecting the
    // value and not the sum keeps one fused multiply-add in every loop, so that all give the same bits: from a selected sum LLVM makes
    // (acc + select(0, prob * value)).
    Halide::Expr accumulate(const Halide::RDom *loop, const Halide::Expr &acc, const Halide::Expr &prob, const Halide::Expr &value,
                            const Halide::Expr &logit) const;
    // The same after a word of keys, one logit for each.
    Halide::Expr accumulate(const Halide::RDom *loop, const LaneProduct &product, const Halide::Expr &acc, const Halide::Expr &probs,
                            const Halide::Expr &values, const std::vector<Halide::Expr> &logits) const;
};

// The facts of rows that logits need, as Funcs of a frame's own coordinates of a row: vector compares read one row of numbers.
struct RowBounds {
    Halide::Func end{"row_end"};           // a row sees keys from begin to before end at most
    Halide::Func begin{"row_begin"};       // undefined where it is 0
    Halide::Func position{"row_position"}; // undefined where logits do not depend on it

    // q: the query of a row whose coordinates are `row`.
    void define(const AttentionFormulas &formulas, const std::vector<Halide::Var> &row, const Halide::Expr &q, const Halide::Expr &b);
    Row at(const std::vector<Halide::Expr> &row, const Halide::Expr &q) const;
    // Those that are there.
    std::vector<Halide::Func> funcs() const;
};

} // namespace polyhead::gen
