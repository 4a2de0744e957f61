// The features whose cost is promised.
#include "features.h"

#include <algorithm>

#include "../instruments/calls/problems.h"
#include "../instruments/reference/expressions.h"
#include "../instruments/reference/reference.h"
#include "../instruments/reference/visibility.h"

namespace bench {

using polyhead::Problem;
using polyhead::test::Shape;

namespace {

constexpr int32_t heads = 12, grouped_heads = 4, tokens = 1024, head_dim = 64;
// Of the issue: what only leaves work out or adds a number per row, what touches every logit, and two at once.
constexpr double per_row = 1.10, per_logit = 1.25, of_two = 1.40, by_bytes = 0;

// The text of an expression whose meaning the tests know, so that answers can be checked.
void express(const char *name, Problem *p) {
    for (const polyhead::test::ExpressionCase &one : polyhead::test::expression_cases())
        if (std::string(one.name) == name)
            p->expression = one.text;
}

void mask_of_pairs(Problem *p, Shape *s, polyhead_mask mask) {
    p->mask = mask;
    s->extras.mask.rank = 2; // [T_q,T_kv], the same for all heads
    s->extras.fill = polyhead::test::MaskFill::random;
}

void mask_of_keys(Problem *p, Shape *s) {
    p->mask = POLYHEAD_BOOLEAN_MASK;
    p->mask_broadcast = POLYHEAD_BROADCAST_Q;
    s->extras.mask.rank = 4; // [1,1,1,T_kv]
    s->extras.mask.full = {false, false, false, true};
    s->extras.fill = polyhead::test::MaskFill::random;
}

void bias_per_head(Problem *p, Shape *s) {
    p->score_bias = 1;
    s->extras.score_bias.rank = 3; // [H,T_q,T_kv]
}

void window_back(Problem *p, Shape *s) {
    p->window = 1;
    s->extras.window_left = 256;
    s->extras.window_right = 0;
}

} // namespace

const std::vector<Feature> &features() {
    static const std::vector<Feature> all = {
        {"key lengths", per_row, nullptr,
         [](Problem *p, Shape *s) {
             p->kv_lengths = 1;
             s->lengths = {tokens};
         }},
        {"causal", per_row, nullptr, [](Problem *p, Shape *) { p->causal = POLYHEAD_BOTTOM_RIGHT; }},
        {"window 256/0", per_row, nullptr, window_back},
        {"softmax_scale", per_row, nullptr, [](Problem *, Shape *s) { s->softmax_scale = 0.2f; }},
        {"lse", per_row, nullptr, [](Problem *p, Shape *) { p->lse = 1; }},
        {"grouped heads 12/4", per_row, nullptr, [](Problem *p, Shape *) { p->num_kv_heads = grouped_heads; }},
        {"bool mask [T,T]", per_logit, "mask", [](Problem *p, Shape *s) { mask_of_pairs(p, s, POLYHEAD_BOOLEAN_MASK); }},
        {"bool mask [T_kv]", per_logit, "mask", mask_of_keys},
        {"f32 mask [T,T]", per_logit, "mask", [](Problem *p, Shape *s) { mask_of_pairs(p, s, POLYHEAD_ADDITIVE_MASK); }},
        {"bias [H,T,T]", per_logit, nullptr, bias_per_head},
        {"ALiBi", per_logit, nullptr, [](Problem *p, Shape *) { p->alibi = 1; }},
        {"softcap", per_logit, nullptr, [](Problem *p, Shape *) { p->softcap = 1; }},
        {"sinks", per_logit, nullptr, [](Problem *p, Shape *) { p->sinks = 1; }},
        {"RoPE half-split", per_logit, "rope", [](Problem *p, Shape *) { p->rope = POLYHEAD_ROPE_HALF_SPLIT; }},
        {"RoPE interleaved", per_logit, "rope", [](Problem *p, Shape *) { p->rope = POLYHEAD_ROPE_INTERLEAVED; }},
        {"RoPE, 3 directions", per_logit, "rope",
         [](Problem *p, Shape *) {
             p->rope = POLYHEAD_ROPE_HALF_SPLIT;
             p->rope_sections = POLYHEAD_SECTIONS_CONTIGUOUS;
             p->section_1 = 8, p->section_2 = p->section_3 = 12;
         }},
        {"norms of query and key", per_logit, nullptr, [](Problem *p, Shape *) { p->query_norm = p->key_norm = POLYHEAD_RMS_NORM; }},
        {"head gate", per_logit, nullptr, [](Problem *p, Shape *) { p->head_gate = 1; }},
        {"gate [H,T,1]", per_logit, "gate", [](Problem *p, Shape *) { p->gate = POLYHEAD_GATE_OF_HEADS; }},
        {"gate [H,T,d]", per_logit, "gate", [](Problem *p, Shape *) { p->gate = POLYHEAD_GATE_OF_ENTRIES; }},
        {"expr. table[h, kv - p]", per_logit, "expression", [](Problem *p, Shape *) { express("relative position bias", p); }},
        {"expr. soft threshold", per_logit, "expression", [](Problem *p, Shape *) { express("soft threshold", p); }},
        {"expr. random mask", 0, "expression", [](Problem *p, Shape *) { express("random mask", p); }},
        {"expr. document mask", per_logit, "expression", [](Problem *p, Shape *) { express("document mask", p); }},
    };
    return all;
}

const std::vector<Feature> &score_outputs() {
    static const std::vector<Feature> all = {
        {"scaled scores", by_bytes, nullptr, [](Problem *p, Shape *) { p->scores = POLYHEAD_SCALED_SCORES; }},
        {"logits", by_bytes, nullptr, [](Problem *p, Shape *) { p->scores = POLYHEAD_LOGITS; }},
        {"weights", by_bytes, nullptr, [](Problem *p, Shape *) { p->scores = POLYHEAD_WEIGHTS; }},
        {"weights_mean", by_bytes, nullptr, [](Problem *p, Shape *) { p->weights_mean = 1; }},
    };
    return all;
}

FeatureCase::FeatureCase(std::vector<const Feature *> on) : on_(std::move(on)), problem_(polyhead::test::sdpa_problem(heads, head_dim)) {
    shape_.seq_len_q = shape_.seq_len_kv = tokens;
    shape_.extras.left_out = polyhead::test::leave_out_positions_q | polyhead::test::leave_out_positions_kv;
    shape_.extras.fill = polyhead::test::MaskFill::all;
    for (const Feature *feature : on_)
        feature->apply(&problem_, &shape_);
}

std::string FeatureCase::name() const {
    std::string text;
    for (const Feature *feature : on_)
        text += (text.empty() ? "" : " + ") + std::string(feature->name);
    return text.empty() ? "plain" : text;
}

double FeatureCase::limit() const {
    return on_.empty() ? 0 : on_.size() == 1 ? on_[0]->limit : of_two;
}

std::vector<FeatureCase> FeatureCase::pairs() {
    std::vector<FeatureCase> all;
    for (const Feature &one : features())
        for (const Feature &other : features())
            if (&one < &other && !(one.slot && other.slot && std::string(one.slot) == other.slot))
                all.push_back(FeatureCase({&one, &other}));
    return all;
}

double work_left(const Problem &problem, const polyhead_args &args) {
    constexpr int64_t tile_q = 32, tile_kv = 64;
    const int64_t rows = polyhead::test::num_rows(args), keys = polyhead::test::num_keys(problem, args);
    int64_t tiles = 0, left = 0;
    for (int64_t b = 0; b < polyhead::test::batch_size(problem, args); b++)
        for (int64_t first_q = 0; first_q < rows; first_q += tile_q)
            for (int64_t first = 0; first < keys; first += tile_kv, tiles++)
                for (int64_t q = first_q; q < std::min(first_q + tile_q, rows); q++) {
                    const polyhead::test::KeyRange seen = polyhead::test::key_range(problem, args, b, q);
                    if (std::max(seen.begin, first) < std::min(seen.end, first + tile_kv)) {
                        left++;
                        break;
                    }
                }
    return static_cast<double>(left) / static_cast<double>(tiles);
}

} // namespace bench
