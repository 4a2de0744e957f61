// Rows of heads that are written to where attention reads them: into the cache of a layer, rotated by position, or normalised ones.
#pragma once

#include <string>
#include <vector>

#include "head_norms.h"
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
    bool computed = false;            // some head of the kernel is rotated or normalised before it is written
    int head_dim = 0, rotary_dim = 0; // rotary_dim 0: nothing is rotated
    Halide::RDom plain;               // (d, t, h, b): entries that are not rotated; undefined where all are
    Halide::RDom rotated;             // (part, pair, t, h, b)
    Halide::Expr count;               // of entries of a call
    std::optional<HeadNorm> norm;     // of the heads, each by itself, that nothing else reads

    // Before write(): the size of a cache is known from then on.
    void define(const Halide::Func &func, const Halide::Type &type, bool output);
    using Heads = HeadNorm::Of;
    Heads heads = Heads::query;
    bool in_one_loop() const { return !plain.defined() || !rotated.defined(); }
    // formulas: of a problem whose query, key and value are the heads of so many tokens.
    void write(Heads heads, const AttentionFormulas &formulas, const Storage &storage, const Halide::Expr &tokens, const HeadPlace &place);
    Halide::Expr extent(int dimension) const { return rows.output_buffer().dim(dimension).extent(); } // of a cache
    KeySource::Element reader(bool on_device) const;
};

// The caches of a layer, before anything is written to them.
std::vector<HeadRows> define_caches(const Halide::Func &key, const Halide::Func &value, const Halide::Type &type);

// Writes keys and values of the call into their caches, which are the first two of `rows`. formulas: as for HeadRows::write().
void write_cache(const Problem &problem, const AttentionFormulas &formulas, const Storage &storage, std::vector<HeadRows> *rows);
// Gives attention the keys of a cache of so many blocks instead of projected heads. Queries are rotated before, and keys were when they
// were written: the problem of attention has nothing to rotate. Rows of queries are kept in the storage `query`.
void read_cache(Problem *problem, AttentionInputs *inputs, const AttentionFormulas &formulas, const Storage &query, const KeySource &keys,
                const Halide::Expr &blocks, bool on_device, std::vector<HeadRows> *rows);

// Gives attention rows of heads that are normalised and rotated once for a call: frames read a row many times. formulas: over the
// normalised heads of `inputs`, of a problem that rotates where both query and key get rows that are rotated; the problem of attention then
// has nothing to rotate. given: key and value before their norms.
void keep_rows(Problem *problem, AttentionInputs *inputs, const AttentionFormulas &formulas, const Storage &query,
               const Storage &key_and_value, const KeySource &given, bool on_device, std::vector<HeadRows> *rows);
// The rows where a norm is read once, in one loop, have it.
void give_norms_to_rows(std::vector<HeadNorm> *norms, std::vector<HeadRows> *rows);

} // namespace polyhead::gen
