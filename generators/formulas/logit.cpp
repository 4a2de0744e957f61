// The logit of a pair: modifiers of the score, additive terms, and what excludes the pair.
#include "logit.h"

#include <algorithm>

#include "../written_order.h"
#include "infinity.h"

namespace polyhead::gen {

using Halide::Expr;

namespace {

// Conjunction with what may be undefined.
void also(Expr *condition, const Expr &next) {
    *condition = condition->defined() ? *condition && next : next;
}

// Does an element of a pair tensor let its pair take part?
Expr lets_take_part(const PairTensor &tensor, const Expr &element) {
    return tensor.storage.load ? !tensor.storage.is_minus_infinity(element) : element != 0;
}

// Both in one: the sum of what they add, -inf where one of them excludes.
PairTensor joined(const PairTensor &one, const PairTensor &other) {
    return {one.name + "_" + other.name, storage_of(POLYHEAD_F32, false), one.per_query || other.per_query,
            [=](const Expr &kv, const Expr &q, const Expr &h, const Expr &b) {
                Expr sum, part;
                for (const PairTensor &tensor : {one, other}) {
                    const Expr element = tensor.at(kv, q, h, b);
                    also(&part, lets_take_part(tensor, element));
                    if (tensor.storage.load) {
                        const Expr term = Halide::max(tensor.storage.load(element), lowest_addend);
                        sum = sum.defined() ? sum + term : term;
                    }
                }
                return finite_or_minus_infinity(part, sum);
            }};
}

std::vector<PairTensor> make_pair_tensors(const Problem &p, const AttentionInputs &in) {
    std::vector<PairTensor> tensors;
    auto add = [&, element = in.element](const char *name, const Storage &storage, int broadcast) {
        tensors.push_back(
            {name, storage, (broadcast & POLYHEAD_BROADCAST_Q) == 0, [=](const Expr &kv, const Expr &q, const Expr &h, const Expr &b) {
                 return element(name, {(broadcast & POLYHEAD_BROADCAST_KV) != 0 ? Expr(0) : kv,
                                       (broadcast & POLYHEAD_BROADCAST_Q) != 0 ? Expr(0) : q, h, b});
             }});
    };
    if (p.mask != POLYHEAD_NO_MASK) {
        add("mask", p.mask == POLYHEAD_BOOLEAN_MASK ? Storage{Halide::UInt(8), nullptr, nullptr, 0} : in.additive_storage,
            p.mask_broadcast);
    }
    if (p.score_bias != 0) {
        add("score_bias", in.additive_storage, p.score_bias_broadcast);
    }
    // Where floats differ by query, frames that transpose tiles of them transpose one for two.
    const bool transposes_floats =
        std::any_of(tensors.begin(), tensors.end(), [](const PairTensor &t) { return t.per_query && t.storage.load; });
    return tensors.size() == 2 && transposes_floats ? std::vector<PairTensor>{joined(tensors[0], tensors[1])} : tensors;
}

} // namespace

Logits::Logits(const std::shared_ptr<const FormulaContext> &context)
    : FormulaPart(context), pair_tensors_(make_pair_tensors(context->problem, context->inputs)) {}

bool Logits::excludes_pairs() const {
    return problem().mask != POLYHEAD_NO_MASK || problem().score_bias != 0 || in().expression.masks();
}

bool Logits::plain() const {
    return problem().softcap == 0 && problem().alibi == 0 && !excludes_pairs() && !in().has_expression();
}

Expr Logits::natural(const Expr &score) const {
    return problem().softcap != 0 ? in().number("softcap") * in().numerics.tanh(score) : in().natural_logits() ? score : score * ln_2;
}

Expr Logits::slope(const Expr &score, const Row &row, const Expr &kv, const Expr &h, const Expr &b) const {
    const Expr of_expression = score_slope(in().expression, in().scope(natural(score), row, kv, h, b));
    if (problem().softcap == 0) {
        return of_expression;
    }
    const Expr bent = in().numerics.tanh(score), of_cap = (1.0f - bent) * (1.0f + bent);
    return of_expression.defined() ? of_expression * of_cap : of_cap;
}

std::vector<language::TableRead> Logits::table_reads() const {
    return in().expression.program() ? language::table_reads(*in().expression.program(), problem()) : std::vector<language::TableRead>();
}

Expr Logits::by_read(const language::TableRead &read, const Expr &score, const Row &row, const Expr &kv, const Expr &h,
                     const Expr &b) const {
    return derivative_by(in().expression, *read.node, in().scope(natural(score), row, kv, h, b));
}

std::vector<Expr> Logits::indices(const language::TableRead &read, const Expr &q, const Expr &kv, const Expr &h, const Expr &b) const {
    const ExpressionScope scope = in().scope(Expr(), {q, Expr(), Expr(), Expr()}, kv, h, b);
    std::vector<Expr> all;
    for (const language::NodePtr &index : read.node->args) {
        all.push_back(language::value_of(*index, scope));
    }
    return all;
}

Expr Logits::alibi(const Row &row, const Expr &kv, const Expr &h, const Expr &b, const Expr &unit) const {
    const Expr slope = -in().element("alibi_slopes", {h, b});
    return (unit.defined() ? rounded_product(slope, unit) : slope) * Halide::cast<float>(Halide::abs(row.position - kv));
}

bool Logits::adds_pairs() const {
    return std::any_of(pair_tensors_.begin(), pair_tensors_.end(), [](const PairTensor &tensor) { return tensor.storage.load != nullptr; });
}

// What is added to a natural logit, or undefined.
Expr Logits::additive_terms(const Row &row, const Expr &kv, const Expr &h, const Expr &b, const std::vector<Expr> &pairs) const {
    Expr sum;
    int count = 0;
    auto add = [&](const Expr &term) {
        sum = sum.defined() ? add_in_order(sum, term) : term;
        count++;
    };
    if (problem().alibi != 0) {
        add(alibi(row, kv, h, b));
    }
    for (size_t i = 0; i < pairs.size(); i++) {
        if (pair_tensors_[i].storage.load) {
            add(Halide::max(pair_tensors_[i].storage.load(pairs[i]), lowest_addend));
        }
    }
    return count > 1 ? Halide::max(sum, lowest_addend) : sum;
}

// The condition under which a pair takes part, or undefined: always.
Expr Logits::takes_part(const Expr &natural_score, const Row &row, const Expr &kv, const Expr &h, const Expr &b,
                        const std::vector<Expr> &pairs, bool compare_range) const {
    Expr part;
    if (compare_range) {
        also(&part, kv < row.end);
        if (row.begin.defined()) {
            also(&part, kv >= row.begin);
        }
    }
    for (size_t i = 0; i < pairs.size(); i++) {
        also(&part, lets_take_part(pair_tensors_[i], pairs[i]));
    }
    if (in().expression.masks()) {
        also(&part, mask_of(in().expression, in().scope(natural_score, row, kv, h, b)));
    }
    return part;
}

Expr Logits::logit(const Expr &score, const Row &row, const Expr &kv, const Expr &h, const Expr &b, const std::vector<Expr> &pairs,
                   bool compare_range, const Expr &least) const {
    Expr result = score;
    const Expr added = additive_terms(row, kv, h, b, pairs);
    if (in().natural_logits()) {
        result = score_of(in().expression, in().scope(natural(score), row, kv, h, b));
        result = added.defined() ? add_in_order(result, added) : result;
    } else if (added.defined()) {
        // One term is a product that is part of a multiply-add: a slope alone has its unit before the distance.
        const Expr scaled = adds_pairs() ? added * log2_e : alibi(row, kv, h, b, log2_e);
        result = score + (least.defined() ? Halide::max(scaled, least) : scaled);
    }
    const Expr part = takes_part(natural(score), row, kv, h, b, pairs, compare_range);
    return part.defined() ? Halide::select(part, result, excluded_logit) : result;
}

} // namespace polyhead::gen
