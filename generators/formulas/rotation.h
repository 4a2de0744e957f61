// Rotation of query and key by position (RoPE).
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "../../contract/problem.h"
#include "../../contract/rope_sections.h"
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
    // Rows of the tables of cosines and sines, by direction.
    std::vector<Expr> query_rows(const Expr &q, const Expr &b) const;
    std::vector<Expr> key_rows(const Expr &kv, const Expr &b) const;
    // A part of a rotated pair, from the entries of a head at rows of the tables.
    Expr rotated(const Expr &part, const Expr &pair, const std::vector<Expr> &rows, const std::function<Expr(Expr entry)> &head) const;
    // The same by the opposite angles.
    Expr turned_back(const Expr &part, const Expr &pair, const std::vector<Expr> &rows, const std::function<Expr(Expr entry)> &head) const;

private:
    contract::RopeSections sections() const { return contract::sections_of(problem()); }
    // Entries of a direction lie together, and its pairs are not neighbours.
    bool splits_parts() const { return sections().splits_parts(contract::rotates_neighbours(problem().rope)); }
    // The value of the direction that a pair belongs to.
    Expr of_direction(const Expr &pair, const std::vector<Expr> &values) const;
    // Element {token, b} of positions, or {token, direction, b}.
    Expr position(const char *tensor, const Expr &token, int direction, const Expr &b) const;
    // Of rope_cos or rope_sin, which have one length: any position; beyond the ends, those.
    Expr table(const char *name, const Expr &pair, const std::vector<Expr> &rows) const;
};

} // namespace polyhead::gen
