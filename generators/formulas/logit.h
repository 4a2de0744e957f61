// The logit of a pair, from its score.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "../../plan/language/reads.h"
#include "context.h"

namespace polyhead::gen {

// The logit of an excluded key, and the floor of a row's reference exponent. The floor lies so far above that an excluded
// key's probability is 0 even in an empty row, and below every logit that takes part.
constexpr float excluded_logit = -3.4e38f;
constexpr float row_reference_floor = -2.6e38f;

// A tensor over pairs of query and key from which logits are made. Frames whose lanes are queries stage it: it lies along keys.
struct PairTensor {
    std::string name;
    Storage storage; // of its elements; a boolean mask has none that loads floats
    bool per_query;  // otherwise one row serves all queries
    std::function<Halide::Expr(Halide::Expr kv, Halide::Expr q, Halide::Expr h, Halide::Expr b)> at; // an element as it is stored
};

class Logits : public FormulaPart {
public:
    explicit Logits(const std::shared_ptr<const FormulaContext> &context);

    // Tensors or an expression exclude keys one by one.
    bool excludes_pairs() const;
    // ALiBi takes the position of rows: frames keep Row::position.
    bool uses_position() const { return problem().alibi != 0; }
    // The logit equals the score: no modifier is active.
    bool plain() const;

    const std::vector<PairTensor> &pair_tensors() const { return pair_tensors_; }
    // The logit of a pair, from its score and the elements of the pair tensors; excluded_logit where the row does not
    // see the key. compare_range: not all keys that come here lie within the row's range. least: of what is added, in base 2; undefined:
    // any.
    Expr logit(const Expr &score, const Row &row, const Expr &kv, const Expr &h, const Expr &b, const std::vector<Expr> &pairs,
               bool compare_range, const Expr &least = Expr()) const;
    // The derivative of the logit of a pair by its natural score; undefined where it is 1.
    Expr slope(const Expr &score, const Row &row, const Expr &kv, const Expr &h, const Expr &b) const;
    // Reads of tensors of the expression whose gradient is wanted, the derivative of the logit by one of them, and its indices, outermost
    // first.
    std::vector<language::TableRead> table_reads() const;
    Expr by_read(const language::TableRead &read, const Expr &score, const Row &row, const Expr &kv, const Expr &h, const Expr &b) const;
    std::vector<Expr> indices(const language::TableRead &read, const Expr &q, const Expr &kv, const Expr &h, const Expr &b) const;
    // The derivative of the logit by the slope of ALiBi.
    static Expr by_alibi_slope(const Row &row, const Expr &kv) { return -Halide::cast<float>(Halide::abs(row.position - kv)); }
    // Did this logit exclude its key?
    static Expr excluded(const Expr &logit) { return logit < -3.0e38f; }
    // The score as it stands before additive terms, in natural units: what an expression reads.
    Expr natural(const Expr &score) const;

private:
    Expr takes_part(const Expr &natural_score, const Row &row, const Expr &kv, const Expr &h, const Expr &b, const std::vector<Expr> &pairs,
                    bool compare_range) const;
    // ALiBi's term of a natural logit, times unit where that is defined.
    Expr alibi(const Row &row, const Expr &kv, const Expr &h, const Expr &b, const Expr &unit = Expr()) const;
    bool adds_pairs() const; // an additive mask or a bias
    Expr additive_terms(const Row &row, const Expr &kv, const Expr &h, const Expr &b, const std::vector<Expr> &pairs) const;

    std::vector<PairTensor> pair_tensors_;
};

} // namespace polyhead::gen
