// Which pairs of query and key take part, as ranges.
#include "visibility.h"

namespace polyhead::gen {

using Halide::Expr;

bool Visibility::has_begin() const {
    return problem().window != 0 || key_bounds(in().expression, in().scope(0.0f, {0, 0, 0, 0}, 0, 0, 0)).begin.defined();
}

bool Visibility::bounded_by_expression() const {
    const KeyBounds bounds = key_bounds(in().expression, in().scope(0.0f, {0, 0, 0, 0}, 0, 0, 0));
    return bounds.begin.defined() || bounds.end.defined();
}

bool Visibility::rows_differ() const {
    return problem().causal != POLYHEAD_NOT_CAUSAL || problem().window != 0 || bounded_by_expression();
}

Expr Visibility::keys_begin(const Expr &q, const Expr &b) const {
    Expr begin;
    if (problem().window != 0) {
        begin = Halide::max(position(q, b) - in().number("window_left"), 0);
    }
    const Expr derived = key_bounds(in().expression, in().scope(0.0f, {q, 0, 0, 0}, 0, 0, b)).begin;
    if (derived.defined()) {
        begin = begin.defined() ? Halide::max(begin, derived) : Halide::max(derived, 0);
    }
    return begin;
}

Expr Visibility::keys_end(const Expr &q, const Expr &b) const {
    Expr end = kv_length(b);
    if (moves()) {
        // The last key is p + right, right = 0 for causal. top_left: min(length, last + 1). bottom_right: the last query sees the last
        // valid key, so length + min(last + 1 - seq_len_q, 0). Both in one, without a select and with one mention of length, which may be a
        // load: Halide 21 trims loops that end here only then.
        Expr last = q;
        last = problem().window != 0 ? last + in().number("window_right") : last;
        last = problem().position_offsets ? last + in().element("position_offsets", {b}) : last;
        const Expr from_end = in().number("from_end") * largest_length;
        const Expr missing = Halide::max(Halide::min(last + 1 - in().inputs.seq_len_q, 0), -from_end);
        end = Halide::max(Halide::min(end, last + 1 + from_end) + missing, 0);
    }
    const Expr derived = key_bounds(in().expression, in().scope(0.0f, {q, 0, 0, 0}, 0, 0, b)).end;
    return derived.defined() ? Halide::max(Halide::min(end, derived), 0) : end;
}

Expr Visibility::queries_begin(const Expr &kv, const Expr &b) const {
    if (!moves()) {
        return 0;
    }
    // The first query whose last key, position + right, is kv or one behind it.
    const Expr reached = problem().window != 0 ? kv - in().number("window_right") : kv;
    return Halide::clamp(reached - position(0, b), 0, in().inputs.seq_len_q);
}

Expr Visibility::queries_end(const Expr &kv, const Expr &b) const {
    Expr end = in().inputs.seq_len_q;
    if (problem().window != 0) {
        end = Halide::clamp(kv + in().number("window_left") + 1 - position(0, b), 0, end);
    }
    return Halide::select(kv < kv_length(b), end, 0);
}

} // namespace polyhead::gen
