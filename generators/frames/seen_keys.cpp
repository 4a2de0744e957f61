// Which keys the rows of a tile see.
#include "seen_keys.h"

namespace polyhead::gen {

using Halide::Expr;
using Halide::Func;
using Halide::RDom;

TileRange::TileRange(const AttentionFormulas &formulas, const Expr &first_query, const Expr &last_query, const Expr &b)
    : begin_some(formulas.visibility().keys_begin(first_query, b)), begin_all(formulas.visibility().keys_begin(last_query, b)),
      end_all(formulas.visibility().keys_end(first_query, b)), end_some(formulas.visibility().keys_end(last_query, b)) {}

void TileRange::limit(RDom *domain, const Expr &first, const Expr &behind) const {
    domain->where(first < end_some);
    if (begin_some.defined()) {
        domain->where(behind > begin_some);
    }
}

Expr first_piece(const AttentionFormulas &formulas, const TileRange &range, int length) {
    return range.begin_some.defined() ? Halide::min(range.begin_some, formulas.inputs().keys.rows()) / length : Expr(0);
}

Expr most_pieces(const AttentionFormulas &formulas, const Expr &all, const Expr &rows, int length) {
    if (formulas.problem().window == 0) {
        return all;
    }
    const Expr reached = rows + formulas.inputs().number("window_left") + formulas.inputs().number("window_right");
    return Halide::min(all, (reached + length - 2) / length + 1);
}

Expr KeySplits::count() const {
    const AttentionInputs &in = formulas.inputs();
    const Expr all = Halide::max(in.keys.rows() + length - 1, length) / length;
    return most_pieces(formulas, all, in.seq_len_q, length);
}

TileKeys::TileKeys(const AttentionFormulas &formulas, int length, const Expr &first_key, const TileRange &range, const Expr &clean,
                   int keys_of_word, bool mostly_whole)
    : low(0, length / keys_of_word, "low_keys"), whole(0, length / keys_of_word, "whole_keys"), high(0, length / keys_of_word, "high_keys"),
      has_low(range.begin_some.defined()), has_high(formulas.visibility().rows_differ() || formulas.logits().excludes_pairs()),
      first(first_key), pair(keys_of_word) {
    const auto first_of = [&](const RDom &word) { return first + Expr(word) * pair; };
    const auto last_of = [&](const RDom &word) { return first_of(word) + (pair - 1); };
    Expr whole_end = range.end_all;
    if (formulas.logits().excludes_pairs()) {
        whole_end = clean.defined() ? Halide::select(clean, whole_end, 0) : Expr(0);
    }
    Expr high_begin = whole_end;
    if (has_low) {
        low.where(last_of(low) >= range.begin_some);
        low.where(first_of(low) < Halide::min(range.begin_all, range.end_some));
        whole.where(first_of(whole) >= range.begin_all);
        high_begin = Halide::max(whole_end, range.begin_all + (pair - 1));
    }
    const Expr seen_by_all = (has_high ? last_of(whole) : first_of(whole)) < whole_end;
    whole.where(mostly_whole ? Halide::likely(seen_by_all) : seen_by_all);
    high.where(last_of(high) >= high_begin);
    high.where(first_of(high) < range.end_some);
}

void TileKeys::where(const std::function<Expr(const Expr &, const Expr &)> &condition) {
    for (RDom *keys : {&low, &whole, &high}) {
        const Expr key = first + Expr(*keys) * pair;
        keys->where(condition(key, key + (pair - 1)));
    }
}

std::vector<const RDom *> TileKeys::loops() const {
    std::vector<const RDom *> all;
    if (has_low) {
        all.push_back(&low);
    }
    all.push_back(&whole);
    if (has_high) {
        all.push_back(&high);
    }
    return all;
}

Expr TileKeys::accumulate(const RDom *loop, const Expr &acc, const Expr &prob, const Expr &value, const Expr &logit) const {
    return accumulate(loop, lane_product(nullptr), acc, prob, value, {logit});
}

Expr TileKeys::accumulate(const RDom *loop, const LaneProduct &product, const Expr &acc, const Expr &probs, const Expr &values,
                          const std::vector<Expr> &logits) const {
    std::vector<Expr> dropped;
    for (const Expr &logit : logits) {
        dropped.push_back(Logits::excluded(logit));
    }
    return product.add_products(acc, probs, loop == &whole ? values : product.drop(values, dropped));
}

void RowBounds::define(const AttentionFormulas &formulas, const std::vector<Halide::Var> &row, const Expr &q, const Expr &b) {
    end(row) = formulas.visibility().keys_end(q, b);
    if (formulas.visibility().has_begin()) {
        begin(row) = formulas.visibility().keys_begin(q, b);
    }
    if (formulas.logits().uses_position()) {
        position(row) = formulas.visibility().position(q, b);
    }
}

Row RowBounds::at(const std::vector<Expr> &row, const Expr &q) const {
    auto value = [&row](const Func &f) { return f.defined() ? Expr(f(row)) : Expr(); };
    return {q, value(begin), value(end), value(position)};
}

std::vector<Func> RowBounds::funcs() const {
    std::vector<Func> facts;
    for (const Func &f : {end, begin, position}) {
        if (f.defined()) {
            facts.push_back(f);
        }
    }
    return facts;
}

} // namespace polyhead::gen
