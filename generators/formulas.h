// The formulas of attention, written once as Exprs over (b, h, q, kv). Frames evaluate them in their own coordinates.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../contract/weight_layout.h"
#include "expressions/expression.h"
#include "key_source.h"
#include "numerics.h"
#include "problem.h"
#include "storage.h"
#include <Halide.h>

namespace polyhead::gen {

// Logits are in units of log2 e: one multiplication folded into the query makes every exponential a power of two. Where a score is
// changed on its way (softcap, an expression) nothing is saved by that, and one rounding is lost: those are in natural units.
constexpr float log2_e = 1.4426950408889634f;
constexpr float ln_2 = 0.6931471805599453f;
// The logit of an excluded key, and the floor of a row's reference exponent. The floor lies so far above that an excluded
// key's probability is 0 even in an empty row, and below every logit that takes part.
constexpr float excluded_logit = -3.4e38f;
constexpr float row_reference_floor = -2.6e38f;

// What attention reads; it may come from tensors or from Funcs. Positions are in range: frames clamp. What a problem does not have
// stays empty.
struct AttentionInputs {
    using At = Halide::Expr;
    Storage query_storage;
    std::function<At(At d, At q, At h, At b)> stored_query; // an element as it is stored
    KeySource keys;                                         // key and value
    Storage additive_storage;                               // of an additive mask and the score bias
    At query(const At &d, const At &q, const At &h, const At &b) const { return query_storage.load(stored_query(d, q, h, b)); }
    // Tensors and numbers that only some problems have, by their names in contract/tensors.h: elements as they are stored, indices
    // and dimensions innermost first. Formulas ask only for what the problem has.
    std::function<At(const char *tensor, const std::vector<At> &index)> element;
    std::function<At(const char *tensor, int dimension)> extent;
    std::function<At(const char *name)> number;
    std::function<At(size_t tensor, std::vector<At> index)> expression_element;
    Halide::Expr batch, num_heads, num_kv_heads, seq_len_q, seq_len_kv;
    // The whole tensors, for functions of the runtime, where their rows lie as the call gives them; out null where it is written
    // later. Undefined in a layer, which has no tensor of its heads.
    struct Whole {
        Halide::Expr query, key, value, out;
        // Of tensors over pairs, those that differ by query; bytes: what lies there once for all heads counts once.
        struct Pairs {
            Halide::Expr tensor, bytes;
        };
        std::vector<Pairs> pairs;
        // The addresses of rows of key, value and their scales, as numbers, for KeySource::at(); d is not read.
        KeySource::Element key_row, value_row;
        std::vector<KeySource::Element> scale_rows;
    };
    std::optional<Whole> whole;
    // Keys of batch row b that exist: 0..seq_len_kv; with a cache those that were there and those of the call.
    At kv_length(const Problem &problem, const At &b) const;
    // Keys that were in the cache of a layer before the call.
    At cache_length(const At &b) const;
};

// The table of a problem with pages. num_pages: what it may name.
PageTable page_table(const Problem &problem, const AttentionInputs &inputs, const Halide::Expr &num_pages);

// A tensor over pairs of query and key from which logits are made. Frames whose lanes are queries stage it: it lies along keys.
struct PairTensor {
    std::string name;
    Storage storage; // of its elements; a boolean mask has none that loads floats
    bool per_query;  // otherwise one row serves all queries
    std::function<Halide::Expr(Halide::Expr kv, Halide::Expr q, Halide::Expr h, Halide::Expr b)> at; // an element as it is stored
};

// The facts of a row that logits need: it sees keys begin .. end - 1 at most; its position among the keys. Frames keep these with the
// row, so that they are computed once. q may lie beyond the last query in rows that are dropped.
struct Row {
    Halide::Expr q, begin, end, position;
};

// What a row leaves beside its result.
enum class Statistic { lse, weight_reference };

enum class ScoreStage {
    scaled = POLYHEAD_SCALED_SCORES,
    capped = POLYHEAD_CAPPED_SCORES,
    logits = POLYHEAD_LOGITS,
    weights = POLYHEAD_WEIGHTS
};

class AttentionFormulas {
public:
    using Expr = Halide::Expr;
    AttentionFormulas(const Problem &problem, const Expression &expression, const Numerics &numerics, AttentionInputs inputs);

    // The same over other inputs.
    AttentionFormulas reading(AttentionInputs inputs) const { return {problem_, expression_, numerics_, std::move(inputs)}; }

    const Problem &problem() const { return problem_; }
    const AttentionInputs &inputs() const { return inputs_; }
    const Numerics &numerics() const { return numerics_; }
    int group_size() const { return contract::group_size_of(problem_); }

    // Query and key are rotated by position before their dot products.
    bool rotates() const { return problem_.rope != POLYHEAD_NO_ROPE; }
    int rotary_dim() const { return problem_.rotary_dim; }
    // The entry of head_dim that is part 0 or 1 of a rotated pair, and its new value.
    Expr rotary_entry(const Expr &part, const Expr &pair) const;
    // The other way: part and pair of an entry; of those that are not rotated, of the last one that is.
    std::pair<Expr, Expr> rotary_place(const Expr &d) const;
    Expr rotated(const Expr &part, const Expr &first, const Expr &second, const Expr &cos, const Expr &sin) const;
    // Rows of the tables of cosines and sines.
    Expr query_rotation(const Expr &q, const Expr &b) const;
    Expr key_rotation(const Expr &kv, const Expr &b) const;
    // What brings the query, or a score, into the unit of scores.
    Expr query_factor() const;
    // Query in the unit of scores, and key; before rotation, and a part of a rotated pair, and any entry of either.
    Expr plain_query(const Expr &d, const Expr &q, const Expr &h, const Expr &b) const;
    Expr rotated_query(const Expr &part, const Expr &pair, const Expr &q, const Expr &h, const Expr &b) const;
    Expr rotated_plain_query(const Expr &part, const Expr &pair, const Expr &q, const Expr &h, const Expr &b) const; // in no unit
    Expr rotated_key(const Expr &part, const Expr &pair, const Expr &kv, const Expr &kv_head, const Expr &b) const;
    Expr scaled_query(const Expr &d, const Expr &q, const Expr &h, const Expr &b) const;
    Expr key(const Expr &d, const Expr &kv, const Expr &kv_head, const Expr &b) const;

    // Keys of batch row b that exist: 0..seq_len_kv.
    Expr kv_length(const Expr &b) const;
    // Position of query q among the keys.
    Expr position(const Expr &q, const Expr &b) const;
    // Query q takes part with keys keys_begin(q, b) .. keys_end(q, b) - 1 at most. Neither falls with q, so the ends of a tile bound the
    // tile. keys_begin is undefined where it is 0 for every row.
    Expr keys_begin(const Expr &q, const Expr &b) const;
    Expr keys_end(const Expr &q, const Expr &b) const;
    bool has_begin() const;
    // Rows of one batch row may end, or begin, at different keys.
    bool rows_differ() const;
    // Tensors or an expression exclude keys one by one.
    bool excludes_pairs() const;
    // ALiBi takes the position of rows: frames keep Row::position.
    bool uses_position() const;
    // Logits are in natural units, otherwise in units of log2 e.
    bool natural_logits() const;
    // Everything a logit is, but the score, is nothing.
    bool plain_logits() const;

    const std::vector<PairTensor> &pair_tensors() const { return pair_tensors_; }
    // The logit of a pair, from its score and the elements of the pair tensors; excluded_logit where the row does not
    // see the key. compare_range: not all keys that come here lie within the row's range. least: of what is added, in base 2; undefined:
    // any.
    Expr logit(const Expr &score, const Row &row, const Expr &kv, const Expr &h, const Expr &b, const std::vector<Expr> &pairs,
               bool compare_range, const Expr &least = Expr()) const;
    // Did this logit exclude its key?
    static Expr excluded(const Expr &logit) { return logit < -3.0e38f; }
    // A stage of a score in natural units. Instead of a weight the prob relative to weight_reference.
    Expr stage(ScoreStage stage, const Expr &score, const Row &row, const Expr &kv, const Expr &h, const Expr &b,
               const std::vector<Expr> &pairs, const Expr &reference) const;

    // What the probs of a chunk are relative to, from its largest logit: in units of log2 e an integer above it, so that rescaling is
    // exact, in natural units the logit itself.
    Expr reference(const Expr &row_max) const;
    // The prob of a logit <= 0, relative to a reference; exactly 0 where the key is excluded.
    Expr power(const Expr &difference) const;
    // The same for LaneProduct::cut, which then rounds it to nearest.
    Expr power_to_cut(const Expr &difference) const;
    // The factor from one reference to a higher one, from their difference; exactly 1 for 0.
    Expr rescaling(const Expr &difference) const;

    // How a row ends, from its reference exponent and sum. With a sink the reference may move up.
    // Natural log-sum-exp; -inf for an empty row.
    Expr lse(const Expr &reference, const Expr &row_sum, const Expr &h) const;
    // out = acc * this; 0 for an empty row. exact_sum: of the probs that row_sum sums after they were cut; undefined where they were not.
    Expr out_factor(const Expr &reference, const Expr &row_sum, const Expr &h, const Expr &exact_sum = {}) const;
    // weight = prob * weight_factor, where probs are relative to weight_reference and row_sum is their sum.
    Expr weight_reference(const Expr &reference, const Expr &h) const;
    Expr weight_factor(const Expr &weight_reference, const Expr &row_sum, const Expr &h) const;
    Expr statistic(Statistic statistic, const Expr &reference, const Expr &row_sum, const Expr &h) const;

private:
    Expr number(const char *name) const { return inputs_.number(name); }
    Expr element(const char *tensor, const std::vector<Expr> &index) const { return inputs_.element(tensor, index); }
    // A part of a rotated pair, from the entries of a head at a row of the tables.
    Expr rotated_entry(const Expr &part, const Expr &pair, const Expr &row, const std::function<Expr(Expr entry)> &head) const;
    // Of rope_cos or rope_sin, which have one length: any position; beyond the ends, those.
    Expr rotation(const char *table, const Expr &pair, const Expr &row) const;
    struct Ending {
        Expr reference, shrink, sum; // the new reference, 2^(old - new), the sum under the new one
    };
    Expr natural_of(const Expr &logit) const;    // a logit, or a reference, in natural units
    Expr exponent(const Expr &difference) const; // of 2, for a difference of logits
    Ending ending(const Expr &reference, const Expr &row_sum, const Expr &h) const;
    Expr natural(const Expr &score) const;
    Expr takes_part(const Expr &natural_score, const Row &row, const Expr &kv, const Expr &h, const Expr &b, const std::vector<Expr> &pairs,
                    bool compare_range) const;
    // ALiBi's term of a natural logit, times unit where that is defined.
    Expr alibi(const Row &row, const Expr &kv, const Expr &h, const Expr &b, const Expr &unit = Expr()) const;
    bool adds_pairs() const; // an additive mask or a bias
    Expr additive_terms(const Row &row, const Expr &kv, const Expr &h, const Expr &b, const std::vector<Expr> &pairs) const;
    ExpressionScope scope(const Expr &natural_score, const Row &row, const Expr &kv, const Expr &h, const Expr &b) const;
    bool has_expression() const { return expression_.changes_score() || expression_.masks(); }

    Problem problem_;
    Expression expression_;
    Numerics numerics_;
    AttentionInputs inputs_;
    std::vector<PairTensor> pair_tensors_;
};

} // namespace polyhead::gen
