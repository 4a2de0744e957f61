// Rotation of query and key by position (RoPE).
#pragma once

#include <functional>
#include <utility>

#include "context.h"

namespace polyhead::gen {

class Rotation : public FormulaPart {
public:
    using FormulaPart::FormulaPart;

    // Query and key are rotated before their dot products.
    bool active() const { return problem().rope != POLYHEAD_NO_ROPE; }
    // Entries of head_dim that are rotated, in pairs.
    int dim() const { return problem().rotary_dim; }
    // The first of them.
    int first() const { return contract::rotates_trailing(problem().rope) ? problem().head_dim - dim() : 0; }
    // Whether an entry is one of them.
    Expr turns(const Expr &d) const;
    // The entry of head_dim that is part 0 or 1 of a pair.
    Expr entry(const Expr &part, const Expr &pair) const;
    // The other way: part and pair of an entry; of those that are not rotated, of the nearest one that is.
    std::pair<Expr, Expr> place(const Expr &d) const;
    // Rows of the tables of cosines and sines.
    Expr query_row(const Expr &q, const Expr &b) const;
    Expr key_row(const Expr &kv, const Expr &b) const;
    // A part of a rotated pair, from the entries of a head at a row of the tables.
    Expr rotated(const Expr &part, const Expr &pair, const Expr &row, const std::function<Expr(Expr entry)> &head) const;

private:
    // Of rope_cos or rope_sin, which have one length: any position; beyond the ends, those.
    Expr table(const char *name, const Expr &pair, const Expr &row) const;
};

} // namespace polyhead::gen
