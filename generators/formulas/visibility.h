// Which pairs of query and key take part, as ranges: the keys of a query, and the queries of a key. Tensors and expressions may exclude
// further pairs one by one (logit.h).
#pragma once

#include "context.h"

namespace polyhead::gen {

constexpr int largest_length = 1 << 30; // no tensor has more queries or keys

class Visibility : public FormulaPart {
public:
    using FormulaPart::FormulaPart;

    // Keys of batch row b that exist: 0..seq_len_kv.
    Expr kv_length(const Expr &b) const { return in().kv_length(b); }
    // Position of query q among the keys.
    Expr position(const Expr &q, const Expr &b) const { return in().position(q, b); }
    // Query q takes part with keys keys_begin(q, b) .. keys_end(q, b) - 1 at most. Neither falls with q, so the ends of a tile bound the
    // tile. keys_begin is undefined where it is 0 for every row.
    Expr keys_begin(const Expr &q, const Expr &b) const;
    Expr keys_end(const Expr &q, const Expr &b) const;
    bool has_begin() const;
    bool bounded_by_expression() const; // one of them, at least
    // Rows of one batch row may end, or begin, at different keys.
    bool rows_differ() const;
    // The other way: key kv takes part with queries queries_begin(kv, b) .. queries_end(kv, b) - 1 at most; exactly where no expression
    // bounds the keys. Neither falls with kv while the key exists; a key that does not has no queries.
    Expr queries_begin(const Expr &kv, const Expr &b) const;
    Expr queries_end(const Expr &kv, const Expr &b) const;

private:
    // A range that moves with the position of the query.
    bool moves() const { return problem().causal != POLYHEAD_NOT_CAUSAL || problem().window != 0; }
};

} // namespace polyhead::gen
