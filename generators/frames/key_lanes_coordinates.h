// The coordinates of the frame "key lanes".
#pragma once

#include "key_lanes.h"

namespace polyhead::gen {

// A Func of one value or several.
void define_values(Halide::Func f, const std::vector<Halide::Expr> &place, const std::vector<Halide::Expr> &values);
void define_values(Halide::Func f, const std::vector<Halide::Var> &place, const std::vector<Halide::Expr> &values);
Halide::Expr value_at(const Halide::Func &f, const std::vector<Halide::Expr> &place, int i = 0);
inline Halide::Expr value_at(const Halide::Func &f, const std::vector<Halide::Var> &place, int i = 0) {
    return value_at(f, std::vector<Halide::Expr>(place.begin(), place.end()), i);
}

// The coordinates of the frame.
struct KeyLanesCoordinates {
    const AttentionFormulas &formulas;
    const KeyLanesStages &s;
    const KeyLanesBlocking &blocking;

    const AttentionInputs &in() const { return formulas.inputs(); }
    // Parts of a head are dealt to its splits in turns, so that borders depend on nothing but the blocking.
    Halide::Expr part(const Halide::Expr &p, const Halide::Expr &sp) const { return blocking.splits == 1 ? p : p * blocking.splits + sp; }
    // Halide 21 cannot solve it for p. Otherwise it would conclude that Funcs of a part have none of it or several.
    Halide::Expr first_key(const Halide::Expr &p, const Halide::Expr &sp) const {
        return Halide::cast<int32_t>(Halide::cast<uint32_t>(part(p, sp)) * Halide::cast<uint32_t>(blocking.kv_tile));
    }
    Halide::Expr first_key() const { return first_key(s.p, s.sp); }
    Halide::Expr last_key() const { return in().seq_len_kv - 1; }
    Halide::Expr key(const Halide::Expr &kk) const { return part(s.p, s.sp) * blocking.kv_tile + kk; }
    Halide::Expr clamped_key(const Halide::Expr &kk) const { return Halide::clamp(key(kk), 0, in().keys.rows() - 1); }
    // Words of k keys, or queries, of a part, or tile.
    Halide::Expr existing_keys(const Halide::Expr &word) const {
        return existing_words(part(s.p, s.sp) * (blocking.kv_tile / k()) + word, in().keys.rows());
    }
    // Rows behind the last query repeat it.
    Halide::Expr query(const Halide::Expr &qi) const { return Halide::min(s.qt * blocking.q_tile + qi, in().seq_len_q - 1); }
    Halide::Expr existing_query(const Halide::Expr &qi) const {
        return Halide::unsafe_promise_clamped(s.qt * blocking.q_tile + qi, 0, in().seq_len_q - 1);
    }
    Halide::Expr existing_queries(const Halide::Expr &word) const {
        return existing_words(s.qt * (blocking.q_tile / k()) + word, in().seq_len_q);
    }
    // Elements of a word, and words of so many elements.
    int k() const { return s.operands.product.k; }
    int words(int elements) const { return (elements + k() - 1) / k(); }
    Halide::Expr words(const Halide::Expr &elements) const { return (elements + (k() - 1)) / k(); }
    // What gradients of values are multiplied by.
    Halide::Expr kept_weight(const std::vector<Halide::Expr> &pair) const {
        return s.kept_weights.defined() ? Halide::Expr(s.kept_weights(pair)) : value_at(s.weights, pair);
    }
    // The words of weights and gradients of scores: of a key and neighbouring rows, and of neighbouring keys and a row.
    Halide::Expr weight_word(const Halide::Expr &kk, const Halide::Expr &word) const {
        const std::vector<Halide::Expr> place = in_tile({kk, word});
        return k() == 1 ? kept_weight(place) : Halide::Expr(s.weight_words(place));
    }
    Halide::Expr grad_score_word(const Halide::Expr &kk, const Halide::Expr &word) const {
        const std::vector<Halide::Expr> place = in_tile({kk, word});
        return k() == 1 ? value_at(s.grad_scores, place) : Halide::Expr(s.grad_score_words(place));
    }
    Halide::Expr grad_score_word_of_row(const Halide::Expr &word, const Halide::Expr &qi) const {
        return k() == 1 ? value_at(s.grad_scores, in_tile({word, qi}))
                        : s.operands.product.word([&](int part) { return s.grad_score_rows(in_tile({word * k() + part, qi})); });
    }
    Halide::Expr head() const { return s.h * s.group_size + s.g; }
    // Pairs of a tile of queries, of which some may be excluded.
    bool excludes() const { return formulas.visibility().rows_differ() || formulas.logits().excludes_pairs(); }
    TileRange range(const Halide::Expr &first_row, const Halide::Expr &last_row) const { return {formulas, first_row, last_row, s.b}; }
    TileRange tile_range() const { return range(query(0), query(blocking.q_tile - 1)); }

    std::vector<Halide::Expr> in_part(std::vector<Halide::Expr> inner) const { return with(std::move(inner), {s.p, s.sp, s.h, s.b}); }
    std::vector<Halide::Expr> in_tile(std::vector<Halide::Expr> inner) const {
        return with(std::move(inner), {s.qt, s.g, s.p, s.sp, s.h, s.b});
    }
    std::vector<Halide::Var> vars_in_part(std::vector<Halide::Var> inner) const { return with(std::move(inner), {s.p, s.sp, s.h, s.b}); }
    std::vector<Halide::Var> vars_in_tile(std::vector<Halide::Var> inner) const {
        return with(std::move(inner), {s.qt, s.g, s.p, s.sp, s.h, s.b});
    }

private:
    Halide::Expr existing_words(const Halide::Expr &word, const Halide::Expr &rows) const {
        return Halide::unsafe_promise_clamped(word, 0, words(rows) - 1);
    }
    template <class T> static std::vector<T> with(std::vector<T> inner, const std::vector<Halide::Var> &outer) {
        inner.insert(inner.end(), outer.begin(), outer.end());
        return inner;
    }
};

// The parts of the algorithm that end with gradients of scores: numbers of rows, transposed keys, weights. of_logits: of logits, without
// the slopes of scores.
void define_rows(KeyLanesStages &s, const KeyLanesCoordinates &at);
void define_numbers_of_rows(KeyLanesStages &s, const KeyLanesCoordinates &at); // of a tile, from delta
void define_panels(KeyLanesStages &s, const KeyLanesCoordinates &at);
void define_weights(KeyLanesStages &s, const KeyLanesCoordinates &at, bool of_logits);

// Gradients of tensors of the expression (key_lanes_tables.cpp): lines of sums for every read, in rows behind those of queries.
void list_tables(KeyLanesStages &s, const KeyLanesCoordinates &at);
// Appends what is not 1 to the values of weights. by_read: the derivative of a logit.
void add_table_factors(KeyLanesStages &s, const std::function<Halide::Expr(const TableLine &)> &by_read, std::vector<Halide::Expr> *values);
// Appends gradients of reads that are not those of scores. place: of a pair in weights.
void add_table_gradients(KeyLanesStages &s, const Halide::Expr &of_logit, const std::vector<Halide::Expr> &place,
                         std::vector<Halide::Expr> *values);
void define_tables(KeyLanesStages &s, const KeyLanesCoordinates &at);
// The first row, of those of a head's lines, to which a tile of gradients is added.
Halide::Expr place_in_tables(const KeyLanesStages &s, const KeyLanesCoordinates &at, const Halide::Expr &tile, const Halide::Expr &qt,
                             const Halide::Expr &p);

} // namespace polyhead::gen
