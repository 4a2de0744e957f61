// Stages of a score, which take several parts of the formulas.
#include "formulas.h"

#include "formulas/infinity.h"

namespace polyhead::gen {

using Halide::Expr;

Expr AttentionFormulas::score_of_kind(ScoreKind kind, const Expr &score, const Row &row, const Expr &kv, const Expr &h, const Expr &b,
                                      const std::vector<Expr> &pairs, const Expr &reference) const {
    if (kind == ScoreKind::scaled || kind == ScoreKind::capped) {
        const Expr value =
            kind == ScoreKind::scaled && problem().softcap != 0 ? score * inputs().number("softcap") : logits_.natural(score);
        // Keys behind the valid ones lie in no page; to a cache nobody wrote them.
        const bool unnamed = problem().cache != 0 || (problem().page_size > 0 && problem().kv_lengths != 0);
        return unnamed ? Halide::select(kv < visibility_.kv_length(b), value, 0.0f) : value;
    }
    // Weights and their sum are made by two loops. A bias of all keys times log2_e may be rounded before one of them, and be part of a
    // multiply-add in the other: large logits would differ. A maximum between product and sum forbids it. Compilers move one with a
    // constant in front of the product; below this one every prob is 0.
    constexpr float far = 3e38f;
    const Expr l = logits_.logit(score, row, kv, h, b, pairs, true, kind == ScoreKind::weights ? reference - far : Expr());
    if (kind == ScoreKind::logits) {
        return finite_or_minus_infinity(!Logits::excluded(l), softmax_.natural_of(l));
    }
    // Where all keys of a vector are known to be excluded, Halide 21 folds max(min(excluded_logit - reference, 0), -127) to 0: it moves the
    // constants to one side, where 127 is lost beside 3.4e38.
    return Halide::select(Logits::excluded(l), 0.0f, softmax_.power(Halide::min(l - reference, 0.0f)));
}

} // namespace polyhead::gen
