// The formulas of attention: scale, rotation, visibility of keys, logits, and how a row ends.
#include "formulas.h"

#include <algorithm>

#include "written_order.h"

namespace polyhead::gen {

using Halide::Expr;

namespace {

// Additive terms from here on are beyond any logit that matters; two of them and a score stay finite.
constexpr float lowest_addend = -1.7e38f;
constexpr int32_t minus_infinity_bits = int32_t(0xff800000);

// Infinities are made and found by their bits, because the default float mode assumes that none exist: a choice between floats, one of
// them infinite, would mean nothing.
Expr finite_or_minus_infinity(const Expr &finite, const Expr &value) {
    return Halide::reinterpret<float>(Halide::select(finite, Halide::reinterpret<int32_t>(value), minus_infinity_bits));
}

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

AttentionFormulas::AttentionFormulas(const Problem &problem, const Expression &expression, const Numerics &numerics, AttentionInputs inputs)
    : problem_(problem), expression_(expression), numerics_(numerics), inputs_(std::move(inputs)),
      pair_tensors_(make_pair_tensors(problem, inputs_)) {}

// ---- query and key

Expr AttentionFormulas::query_factor() const {
    // softcap divides before tanh; an expression sees natural scores; all other logits are in units of log2 e.
    const Expr scale = number("softmax_scale");
    return problem_.softcap != 0 ? scale / number("softcap") : expression_.changes_score() ? scale : scale * log2_e;
}

Expr AttentionFormulas::plain_query(const Expr &d, const Expr &q, const Expr &h, const Expr &b) const {
    return inputs_.query(d, q, h, b) * query_factor();
}

Expr AttentionFormulas::rotary_entry(const Expr &part, const Expr &pair) const {
    return problem_.rope == POLYHEAD_ROPE_INTERLEAVED ? 2 * pair + part : part * (rotary_dim() / 2) + pair;
}

std::pair<Expr, Expr> AttentionFormulas::rotary_place(const Expr &d) const {
    const Expr entry = Halide::min(d, rotary_dim() - 1);
    if (problem_.rope == POLYHEAD_ROPE_INTERLEAVED) {
        return {entry % 2, entry / 2};
    }
    // A comparison and no division: Halide divides in 64 bits if the divisor is not a power of 2, and Vulkan has no 64 bits.
    const int half = rotary_dim() / 2;
    const Expr part = Halide::select(entry < half, 0, 1);
    return {part, Halide::unsafe_promise_clamped(entry - part * half, 0, half - 1)};
}

Expr AttentionFormulas::rotated(const Expr &part, const Expr &first, const Expr &second, const Expr &cos, const Expr &sin) const {
    return Halide::select(part == 0, first * cos - second * sin, second * cos + first * sin);
}

Expr AttentionFormulas::query_rotation(const Expr &q, const Expr &b) const {
    return element("positions_q", {q, b}) + number("position_step_q") * Halide::max(position(q, b), 0);
}

Expr AttentionFormulas::key_rotation(const Expr &kv, const Expr &b) const {
    // A layer with a cache rotates the keys of the call, behind those that were there.
    const Expr place = problem_.cache != 0 ? inputs_.cache_length(b) + kv : kv;
    return element("positions_kv", {kv, b}) + number("position_step_kv") * place;
}

Expr AttentionFormulas::rotation(const char *table, const Expr &pair, const Expr &row) const {
    return element(table, {pair, Halide::clamp(row, 0, inputs_.extent("rope_cos", 1) - 1)});
}

Expr AttentionFormulas::rotated_entry(const Expr &part, const Expr &pair, const Expr &row, const std::function<Expr(Expr)> &head) const {
    return rotated(part, head(rotary_entry(0, pair)), head(rotary_entry(1, pair)), rotation("rope_cos", pair, row),
                   rotation("rope_sin", pair, row));
}

Expr AttentionFormulas::rotated_query(const Expr &part, const Expr &pair, const Expr &q, const Expr &h, const Expr &b) const {
    return rotated_entry(part, pair, query_rotation(q, b), [&](const Expr &entry) { return plain_query(entry, q, h, b); });
}

Expr AttentionFormulas::rotated_plain_query(const Expr &part, const Expr &pair, const Expr &q, const Expr &h, const Expr &b) const {
    return rotated_entry(part, pair, query_rotation(q, b), [&](const Expr &entry) { return inputs_.query(entry, q, h, b); });
}

Expr AttentionFormulas::rotated_key(const Expr &part, const Expr &pair, const Expr &kv, const Expr &kv_head, const Expr &b) const {
    return rotated_entry(part, pair, key_rotation(kv, b), [&](const Expr &entry) { return inputs_.keys.key(entry, kv, kv_head, b); });
}

Expr AttentionFormulas::scaled_query(const Expr &d, const Expr &q, const Expr &h, const Expr &b) const {
    if (!rotates()) {
        return plain_query(d, q, h, b);
    }
    const auto [part, pair] = rotary_place(d);
    const Expr value = rotated_query(part, pair, q, h, b);
    return rotary_dim() == problem_.head_dim ? value : Halide::select(d < rotary_dim(), value, plain_query(d, q, h, b));
}

Expr AttentionFormulas::key(const Expr &d, const Expr &kv, const Expr &kv_head, const Expr &b) const {
    if (!rotates()) {
        return inputs_.keys.key(d, kv, kv_head, b);
    }
    const auto [part, pair] = rotary_place(d);
    const Expr value = rotated_key(part, pair, kv, kv_head, b);
    return rotary_dim() == problem_.head_dim ? value : Halide::select(d < rotary_dim(), value, inputs_.keys.key(d, kv, kv_head, b));
}

// ---- which keys a row sees

Expr AttentionInputs::cache_length(const Expr &b) const {
    return Halide::clamp(element("cache_lengths", {b}), 0, seq_len_kv - seq_len_q);
}

Expr AttentionInputs::kv_length(const Problem &problem, const Expr &b) const {
    if (problem.cache != 0) {
        return cache_length(b) + seq_len_q;
    }
    return problem.kv_lengths != 0 ? Halide::clamp(element("kv_lengths", {b}), 0, seq_len_kv) : seq_len_kv;
}

PageTable page_table(const Problem &problem, const AttentionInputs &inputs, const Expr &num_pages) {
    const auto existing = [=](const Expr &row, const Expr &b) {
        return Halide::min(row, Halide::max(inputs.kv_length(problem, b), 1) - 1);
    };
    // Clamped, because the table may change while the kernel runs.
    const auto page = [=](const Expr &index, const Expr &b) {
        return Halide::clamp(inputs.element("page_table", {index, b}), 0, num_pages - 1);
    };
    return {problem.page_size, num_pages, existing, page};
}

Expr AttentionFormulas::kv_length(const Expr &b) const {
    return inputs_.kv_length(problem_, b);
}

Expr AttentionFormulas::position(const Expr &q, const Expr &b) const {
    const Expr aligned = q + number("from_end") * (kv_length(b) - inputs_.seq_len_q);
    return problem_.position_offsets ? aligned + element("position_offsets", {b}) : aligned;
}

bool AttentionFormulas::has_begin() const {
    return problem_.window != 0 || expression_.keys_begin(scope(0.0f, {0, 0, 0, 0}, 0, 0, 0)).defined();
}

bool AttentionFormulas::rows_differ() const {
    return problem_.causal != POLYHEAD_NOT_CAUSAL || has_begin() || expression_.keys_end(scope(0.0f, {0, 0, 0, 0}, 0, 0, 0)).defined();
}

bool AttentionFormulas::excludes_pairs() const {
    return problem_.mask != POLYHEAD_NO_MASK || problem_.score_bias != 0 || expression_.masks();
}

bool AttentionFormulas::uses_position() const {
    return problem_.alibi != 0;
}

bool AttentionFormulas::natural_logits() const {
    return problem_.softcap != 0 || expression_.changes_score();
}

bool AttentionFormulas::plain_logits() const {
    return problem_.softcap == 0 && problem_.alibi == 0 && !excludes_pairs() && !has_expression();
}

Expr AttentionFormulas::keys_begin(const Expr &q, const Expr &b) const {
    Expr begin;
    if (problem_.window != 0) {
        begin = Halide::max(position(q, b) - number("window_left"), 0);
    }
    const Expr derived = expression_.keys_begin(scope(0.0f, {q, 0, 0, 0}, 0, 0, b));
    if (derived.defined()) {
        begin = begin.defined() ? Halide::max(begin, derived) : Halide::max(derived, 0);
    }
    return begin;
}

Expr AttentionFormulas::keys_end(const Expr &q, const Expr &b) const {
    Expr end = kv_length(b);
    if (problem_.causal != POLYHEAD_NOT_CAUSAL || problem_.window != 0) {
        // The last key is p + right, right = 0 for causal. top_left: min(length, last + 1). bottom_right: the last query sees the last
        // valid key, so length + min(last + 1 - seq_len_q, 0). Both in one, without a select and with one mention of length, which may be a
        // load: Halide 21 trims loops that end here only then.
        Expr last = q;
        last = problem_.window != 0 ? last + number("window_right") : last;
        last = problem_.position_offsets ? last + element("position_offsets", {b}) : last;
        constexpr int largest_length = 1 << 30;
        const Expr from_end = number("from_end") * largest_length;
        const Expr missing = Halide::max(Halide::min(last + 1 - inputs_.seq_len_q, 0), -from_end);
        end = Halide::max(Halide::min(end, last + 1 + from_end) + missing, 0);
    }
    const Expr derived = expression_.keys_end(scope(0.0f, {q, 0, 0, 0}, 0, 0, b));
    return derived.defined() ? Halide::max(Halide::min(end, derived), 0) : end;
}

// ---- logits

ExpressionScope AttentionFormulas::scope(const Expr &natural_score, const Row &row, const Expr &kv, const Expr &h, const Expr &b) const {
    ExpressionScope s;
    s.score = natural_score;
    s.b = b;
    s.h = h;
    s.q = row.q;
    s.kv = kv;
    s.position = has_expression() ? position(row.q, b) : Expr(0); // an expression of q, along which tensors are loaded in vectors
    s.seq_len_q = inputs_.seq_len_q;
    s.seq_len_kv = inputs_.seq_len_kv;
    s.kv_length = has_expression() ? kv_length(b) : Expr(0);
    s.element = inputs_.expression_element;
    s.exp = [](const Expr &x) { return Halide::exp(x); };
    s.tanh = numerics_.tanh;
    return s;
}

Expr AttentionFormulas::natural(const Expr &score) const {
    return problem_.softcap != 0 ? number("softcap") * numerics_.tanh(score) : expression_.changes_score() ? score : score * ln_2;
}

Expr AttentionFormulas::alibi(const Row &row, const Expr &kv, const Expr &h, const Expr &b, const Expr &unit) const {
    const Expr slope = -element("alibi_slopes", {h, b});
    return (unit.defined() ? rounded_product(slope, unit) : slope) * Halide::cast<float>(Halide::abs(row.position - kv));
}

bool AttentionFormulas::adds_pairs() const {
    return std::any_of(pair_tensors_.begin(), pair_tensors_.end(), [](const PairTensor &tensor) { return tensor.storage.load != nullptr; });
}

// What is added to a natural logit, or undefined.
Expr AttentionFormulas::additive_terms(const Row &row, const Expr &kv, const Expr &h, const Expr &b, const std::vector<Expr> &pairs) const {
    Expr sum;
    int count = 0;
    auto add = [&](const Expr &term) {
        sum = sum.defined() ? add_in_order(sum, term) : term;
        count++;
    };
    if (problem_.alibi != 0) {
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
Expr AttentionFormulas::takes_part(const Expr &natural_score, const Row &row, const Expr &kv, const Expr &h, const Expr &b,
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
    if (expression_.masks()) {
        also(&part, expression_.mask(scope(natural_score, row, kv, h, b)));
    }
    return part;
}

Expr AttentionFormulas::logit(const Expr &score, const Row &row, const Expr &kv, const Expr &h, const Expr &b,
                              const std::vector<Expr> &pairs, bool compare_range, const Expr &least) const {
    Expr result = score;
    const Expr added = additive_terms(row, kv, h, b, pairs);
    if (natural_logits()) {
        result = expression_.score(scope(natural(score), row, kv, h, b));
        result = added.defined() ? add_in_order(result, added) : result;
    } else if (added.defined()) {
        // One term is a product that is part of a multiply-add: a slope alone has its unit before the distance.
        const Expr scaled = adds_pairs() ? added * log2_e : alibi(row, kv, h, b, log2_e);
        result = score + (least.defined() ? Halide::max(scaled, least) : scaled);
    }
    const Expr part = takes_part(natural(score), row, kv, h, b, pairs, compare_range);
    return part.defined() ? Halide::select(part, result, excluded_logit) : result;
}

Expr AttentionFormulas::stage(ScoreStage stage, const Expr &score, const Row &row, const Expr &kv, const Expr &h, const Expr &b,
                              const std::vector<Expr> &pairs, const Expr &reference) const {
    if (stage == ScoreStage::scaled || stage == ScoreStage::capped) {
        const Expr value = stage == ScoreStage::scaled && problem_.softcap != 0 ? score * number("softcap") : natural(score);
        // Keys behind the valid ones lie in no page; to a cache nobody wrote them.
        const bool unnamed = problem_.cache != 0 || (problem_.page_size > 0 && problem_.kv_lengths != 0);
        return unnamed ? Halide::select(kv < kv_length(b), value, 0.0f) : value;
    }
    // Weights and their sum are made by two loops. A bias of all keys times log2_e may be rounded before one of them, and be part of a
    // multiply-add in the other: large logits would differ. A maximum between product and sum forbids it. Compilers move one with a
    // constant in front of the product; below this one every prob is 0.
    constexpr float far = 3e38f;
    const Expr l = logit(score, row, kv, h, b, pairs, true, stage == ScoreStage::weights ? reference - far : Expr());
    if (stage == ScoreStage::logits) {
        return finite_or_minus_infinity(!excluded(l), natural_of(l));
    }
    // Where all keys of a vector are known to be excluded, Halide 21 folds max(min(excluded_logit - reference, 0), -127) to 0: it moves the
    // constants to one side, where 127 is lost beside 3.4e38.
    return Halide::select(excluded(l), 0.0f, power(Halide::min(l - reference, 0.0f)));
}

// ---- softmax

Expr AttentionFormulas::natural_of(const Expr &logit) const {
    return natural_logits() ? logit : logit * ln_2;
}

Expr AttentionFormulas::reference(const Expr &row_max) const {
    return natural_logits() ? row_max : numerics_.round_up(row_max);
}

Expr AttentionFormulas::exponent(const Expr &difference) const {
    return natural_logits() ? difference * log2_e : difference;
}

Expr AttentionFormulas::power(const Expr &difference) const {
    return numerics_.exp2(exponent(difference));
}

Expr AttentionFormulas::power_to_cut(const Expr &difference) const {
    return numerics_.exp2_to_cut(exponent(difference));
}

Expr AttentionFormulas::rescaling(const Expr &difference) const {
    // Polynomials differ from 1 by a unit in the last place: the result of a row would depend on how many chunks other rows see.
    return natural_logits() ? Halide::select(difference == 0.0f, 1.0f, power(difference)) : numerics_.pow2(difference);
}

// ---- how a row ends

AttentionFormulas::Ending AttentionFormulas::ending(const Expr &reference, const Expr &row_sum, const Expr &h) const {
    if (problem_.sinks == 0) {
        return {reference, 1.0f, row_sum};
    }
    const Expr given = element("sinks", {h});
    const Expr finite = Halide::max(given, lowest_addend);
    const Expr sink = Halide::select(storage_of(POLYHEAD_F32, false).is_minus_infinity(given), excluded_logit,
                                     natural_logits() ? finite : finite * log2_e);
    const Expr higher = Halide::max(reference, this->reference(sink));
    const Expr shrink = rescaling(reference - higher);
    return {higher, shrink, row_sum * shrink + power(sink - higher)};
}

Expr AttentionFormulas::lse(const Expr &reference, const Expr &row_sum, const Expr &h) const {
    // log() of a positive sum; the select decides emptiness, never the size of a logit.
    const Ending end = ending(reference, row_sum, h);
    return finite_or_minus_infinity(row_sum > 0.0f, natural_of(end.reference) + Halide::log(Halide::max(end.sum, 1e-37f)));
}

Expr AttentionFormulas::out_factor(const Expr &reference, const Expr &row_sum, const Expr &h, const Expr &exact_sum) const {
    const bool rescales = exact_sum.defined() && problem_.sinks != 0; // to the share that the exact probs have beside the sink
    const Ending end = ending(reference, rescales ? exact_sum : row_sum, h);
    const Expr shrink = rescales ? end.shrink * exact_sum / Halide::max(row_sum, 1e-37f) : end.shrink;
    const Expr factor = Halide::select(row_sum > 0.0f, shrink / Halide::max(end.sum, 1e-37f), 0.0f);
    return problem_.head_gate != 0 ? factor * element("head_gate", {h}) : factor;
}

Expr AttentionFormulas::weight_reference(const Expr &reference, const Expr &h) const {
    return ending(reference, 1.0f, h).reference;
}

Expr AttentionFormulas::weight_factor(const Expr &weight_reference, const Expr &row_sum, const Expr &h) const {
    return Halide::select(row_sum > 0.0f, 1.0f / Halide::max(ending(weight_reference, row_sum, h).sum, 1e-37f), 0.0f);
}

Expr AttentionFormulas::statistic(Statistic statistic, const Expr &reference, const Expr &row_sum, const Expr &h) const {
    return statistic == Statistic::lse ? lse(reference, row_sum, h) : weight_reference(reference, h);
}

} // namespace polyhead::gen
