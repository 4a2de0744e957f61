// Dropout of weights: which pairs are kept, from a counter-based generator of random numbers.
#pragma once

#include <vector>

#include "context.h"

namespace polyhead::gen {

// Decisions are pure functions of (seed, offset, b, h, q, kv). Philox gives four words, eight decisions of 16 bits, from one counter: for
// keys that are 16 apart in a group of 128, so that lanes of keys and lanes of queries both find what they need side by side
// (docs/internals/algorithm.md).
class Dropout : public FormulaPart {
public:
    using FormulaPart::FormulaPart;
    static constexpr int group = 128, lanes = 16, places = group / lanes; // key = group * number + lanes * place + lane

    bool active() const { return problem().dropout != 0; }
    // Of a lane of a group, a number; group_number: of the keys.
    std::vector<Expr> words(const Expr &group_number, const Expr &lane, const Expr &q, const Expr &h, const Expr &b) const;
    // What the weight at a place is multiplied by: 0, or 1 / (share that is kept).
    Expr factor(const std::vector<Expr> &words, const Expr &place) const;

private:
    Expr threshold() const; // of 2^16: as many are kept
};

} // namespace polyhead::gen
