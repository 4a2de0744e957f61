// The cache of a layer: rows of projected heads, keys rotated by position, are written to where attention reads them.
#pragma once

#include <string>
#include <vector>

#include "layer.h"

namespace polyhead::gen {

// Where an entry of token t of a head goes.
using HeadPlace = std::function<std::vector<Halide::Expr>(Halide::Expr d, Halide::Expr t, Halide::Expr h, Halide::Expr b)>;

// Heads of the tokens of a call in another place: in a cache of the caller, or queries after their rotation. The Func has no values but
// those that are written: a cache keeps what it has.
struct HeadRows {
    Halide::Var d{"d"}, row{"row"}, head{"head"}, outermost{"outermost"};
    Halide::Func rows; // (d, row, head, outermost)
    bool is_output = false;
    int head_dim = 0, rotary_dim = 0; // rotary_dim 0: nothing is rotated
    Halide::RDom plain;               // (d, t, h, b): entries that are not rotated; undefined where all are
    Halide::RDom rotated;             // (part, pair, t, h, b)
    Halide::Expr count;               // of entries of a call

    // Before write(): the size of a cache is known from then on.
    void define(const Halide::Func &func, const Halide::Type &type, bool output);
    enum class Heads { query, key, value };
    // formulas: of a problem whose query, key and value are the projected heads.
    void write(Heads heads, const AttentionFormulas &formulas, const Storage &storage, const HeadPlace &place);
    Halide::Expr extent(int dimension) const { return rows.output_buffer().dim(dimension).extent(); } // of a cache
    KeySource::Element reader(bool on_device) const;
};

// The caches of a layer, before anything is written to them.
std::vector<HeadRows> define_caches(const Halide::Func &key, const Halide::Func &value, const Halide::Type &type);

// Writes keys and values of the call into their caches, which are the first two of `rows`, and gives attention these, of so many keys of a
// batch row, instead of projected heads. Queries and keys are rotated before: the problem of attention has nothing to rotate. formulas: as
// for HeadRows::write().
void read_cache(Problem *problem, AttentionInputs *inputs, const AttentionFormulas &formulas, const Storage &storage,
                const Halide::Expr &keys, bool on_device, std::vector<HeadRows> *rows);

} // namespace polyhead::gen
