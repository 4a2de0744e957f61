// Features, their settings and what they make of a problem.
#include "feature_matrix.h"

#include <iterator>
#include <string>

#include "contract/problem.h"
#include "instruments/calls/problems.h"
#include "instruments/reference/expressions.h"
#include "pairwise.h"

namespace polyhead::test {

namespace {

constexpr int number_of_rows = 160, number_of_gradient_rows = 216;
constexpr int32_t model_head_dims[] = {64, 80, 128};

void set_operation(Problem &p, int setting) {
    if (setting > 0) {
        p.op = POLYHEAD_MHA;
        p.cross = setting == 2;
        p.bias = setting == 1;
        p.cache = setting == 3;
    }
}

// Equal heads, groups of two, one key/value head.
void set_heads(Problem &p, int setting) {
    p.num_heads = setting == 0 ? 3 : 4;
    p.num_kv_heads = setting == 0 ? 3 : setting == 1 ? 2 : 1;
}

// Dims that lanes divide, of which one is wider than the other, and odd ones.
void set_dims(Problem &p, int setting) {
    static constexpr int32_t dims[][2] = {{16, 16}, {24, 8}, {8, 32}, {7, 5}};
    p.head_dim = dims[setting][0];
    p.head_dim_v = dims[setting][1];
    if (p.op == POLYHEAD_MHA) {
        p.embed_dim = p.kdim = p.vdim = 20;
        if (p.cross != 0) {
            p.kdim = 12;
            p.vdim = 17;
        }
    }
}

void set_value(Problem &p, int setting) {
    p.value_in_key = setting == 1 && is_sdpa(p) && p.head_dim_v <= p.head_dim;
}

void set_mask(Problem &p, int setting) {
    if (setting > 0) {
        p.mask = setting <= 4 ? POLYHEAD_BOOLEAN_MASK : POLYHEAD_ADDITIVE_MASK;
        p.mask_broadcast = (setting - 1) % 4;
    }
}

void set_bias(Problem &p, int setting) {
    if (setting > 0) {
        p.score_bias = 1;
        p.score_bias_broadcast = setting - 1;
    }
}

// Whole head (where it is even), then a part of it.
void set_rope(Problem &p, int setting) {
    constexpr int narrowest = 4; // of which a part is a pair
    if (setting > 0 && p.head_dim >= narrowest) {
        constexpr int32_t kinds[] = {POLYHEAD_ROPE_INTERLEAVED, POLYHEAD_ROPE_HALF_SPLIT, POLYHEAD_ROPE_INTERLEAVED_TRAILING,
                                     POLYHEAD_ROPE_HALF_SPLIT_TRAILING};
        p.rope = kinds[setting <= 4 ? (setting - 1) % 2 : setting - 3];
        p.rotary_dim = setting <= 2 ? p.head_dim / 2 * 2 : p.head_dim / 4 * 2;
    }
}

// Two or three directions; a head with fewer pairs has none.
void set_sections(Problem &p, int32_t sections) {
    const int32_t pairs = p.rotary_dim / 2, third = pairs / 3;
    if (third > 0) {
        p.rope_sections = sections;
        p.section_2 = third;
        p.section_3 = sections == POLYHEAD_SECTIONS_CONTIGUOUS && pairs % 2 == 0 ? 0 : third;
        p.section_1 = pairs - p.section_2 - p.section_3;
    }
}

// The settings of rope behind those of one position.
void set_rope_or_sections(Problem &p, int setting) {
    constexpr int without_sections = 7;
    constexpr struct {
        int setting;
        int32_t sections;
    } of[] = {{2, POLYHEAD_SECTIONS_CONTIGUOUS},
              {2, POLYHEAD_SECTIONS_INTERLEAVED},
              {2, POLYHEAD_SECTIONS_PARTS},
              {6, POLYHEAD_SECTIONS_PARTS},
              {5, POLYHEAD_SECTIONS_CONTIGUOUS}};
    const bool sections = setting >= without_sections;
    set_rope(p, sections ? of[setting - without_sections].setting : setting);
    if (sections && p.rope != POLYHEAD_NO_ROPE) {
        set_sections(p, of[setting - without_sections].sections);
    }
}

// A layer with a cache has lengths of its own.
void set_kv_lengths(Problem &p, int setting) {
    p.kv_lengths = p.cache != 0 ? 0 : setting;
}

// A layer of self-attention has one length, and a cache any capacity.
void set_lengths(Problem &p, int setting) {
    p.seq_len_q = setting == 1 || setting == 3 ? 21 : 0;
    p.seq_len_kv = (setting == 2 || setting == 3) && p.cache == 0 ? 45 : 0;
    if (p.op == POLYHEAD_MHA && p.cross == 0 && p.cache == 0 && setting > 0) {
        p.seq_len_q = p.seq_len_kv = 45;
    }
}

// A page table has any length, so a length of keys that is fixed has no pages.
void set_pages(Problem &p, int setting) {
    static constexpr int32_t sizes[] = {0, 1, 16, 64};
    p.page_size = (p.op == POLYHEAD_SDPA || p.cache != 0) && p.seq_len_kv == 0 ? sizes[setting] : 0;
}

void set_int8(Problem &p, int setting) {
    p.int8_cache = p.op == POLYHEAD_SDPA && setting == 1;
}

// A layer that reads another one's cache has no keys of its own.
void set_shared_cache(Problem &p, int setting) {
    p.shared_cache = p.cache != 0 ? setting : 0;
}

void set_value_from_key(Problem &p, int setting) {
    if (setting == 1 && contract::projects_key(p) && p.cross == 0) {
        p.value_from_key = 1;
        p.head_dim_v = p.head_dim;
    }
}

// Keys of a cache are stored after their norm, and a value that lies in its key has none of its own.
bool has_own_keys(const Problem &p) {
    return p.op == POLYHEAD_MHA ? contract::projects_key(p) : p.page_size == 0 && p.int8_cache == 0 && p.value_in_key == 0;
}

void set_key_norm(Problem &p, int setting) {
    p.key_norm = has_own_keys(p) ? setting : 0;
}

void set_value_norm(Problem &p, int setting) {
    p.value_norm = has_own_keys(p) ? setting : 0;
}

void set_norm_of_projection(Problem &p, int setting) {
    p.norm_of_projection = p.op == POLYHEAD_MHA && (p.query_norm != 0 || p.key_norm != 0) ? setting : 0;
}

void set_expression(Problem &p, int setting) {
    p.expression = setting == 0 ? nullptr : expression_cases()[static_cast<size_t>(setting) - 1].text;
}

std::vector<Feature> make_features() {
    std::vector<const char *> expressions = {"none"};
    for (const ExpressionCase &one : expression_cases()) {
        expressions.push_back(one.name);
    }
    const std::vector<const char *> yes_no = {"no", "yes"};
    return {
        {"op", {"sdpa", "layer", "cross", "layer with a cache"}, set_operation},
        {"heads", {"equal", "grouped", "one for keys"}, set_heads},
        {"dims", {"16", "24 and 8", "8 and 32", "7 and 5"}, set_dims},
        {"value_in_key", yes_no, set_value},
        {"causal", {"none", "bottom_right", "top_left"}, [](Problem &p, int setting) { p.causal = setting; }},
        {"kv_lengths", yes_no, set_kv_lengths},
        {"lse", yes_no, [](Problem &p, int setting) { p.lse = setting; }},
        {"window", yes_no, [](Problem &p, int setting) { p.window = setting; }},
        {"position_offsets", yes_no, [](Problem &p, int setting) { p.position_offsets = setting; }},
        {"mask",
         {"none", "bool", "bool per key", "bool per row", "bool per head", "additive", "additive per key", "additive per row",
          "additive per head"},
         set_mask},
        {"score_bias", {"none", "full", "per key", "per row", "per head"}, set_bias},
        {"softcap", yes_no, [](Problem &p, int setting) { p.softcap = setting; }},
        {"alibi", yes_no, [](Problem &p, int setting) { p.alibi = setting; }},
        {"sinks", yes_no, [](Problem &p, int setting) { p.sinks = setting; }},
        {"rope",
         {"none", "interleaved", "half_split", "interleaved in part", "half_split in part", "interleaved, trailing part",
          "half_split, trailing part", "contiguous sections", "interleaved sections", "sections in parts",
          "sections in parts, trailing part", "contiguous sections, trailing part"},
         set_rope_or_sections},
        {"head_gate", yes_no, [](Problem &p, int setting) { p.head_gate = setting; }},
        {"scores", {"none", "scaled", "capped", "logits", "weights"}, [](Problem &p, int setting) { p.scores = setting; }},
        {"weights_mean", yes_no, [](Problem &p, int setting) { p.weights_mean = setting; }},
        {"expression", expressions, set_expression},
        {"lengths", {"free", "queries fixed", "keys fixed", "both fixed"}, set_lengths},
        {"pages", {"none", "1", "16", "64"}, set_pages},
        {"int8_cache", yes_no, set_int8},
        {"gate", {"none", "heads", "entries"}, [](Problem &p, int setting) { p.gate = setting; }},
        {"shared_cache", yes_no, set_shared_cache},
        {"value_from_key", yes_no, set_value_from_key},
        {"query_norm", {"none", "rms", "rms_plus_one", "layer"}, [](Problem &p, int setting) { p.query_norm = setting; }},
        {"key_norm", {"none", "rms", "rms_plus_one", "layer"}, set_key_norm},
        {"value_norm", yes_no, set_value_norm},
        {"norm_of_projection", yes_no, set_norm_of_projection},
    };
}

// Built in, with the size of the group alone, or not at all.
void set_gradient_heads(Problem &p, int setting) {
    set_heads(p, setting % 3);
    if (setting >= 3) {
        p.group_size = setting == 3 ? 1 : setting == 4 ? 3 : 0;
        p.free_group_size = setting == 5;
        p.num_heads = p.num_kv_heads = 0;
    }
}

// Of vectors and tiles of every target whole ones and parts.
void set_gradient_dims(Problem &p, int setting) {
    static constexpr int32_t dims[][2] = {{16, 16}, {24, 8}, {8, 32}, {7, 5}, {64, 64}, {1, 1}, {33, 48}, {80, 80}, {40, 128}, {130, 3}};
    p.head_dim = dims[setting][0];
    p.head_dim_v = dims[setting][1];
}

void set_dtype(Problem &p, int setting) {
    static constexpr int32_t dtypes[] = {POLYHEAD_F32, POLYHEAD_BF16, POLYHEAD_BF16, POLYHEAD_F16, POLYHEAD_F16, POLYHEAD_F32};
    p.dtype = dtypes[setting];
    p.additive_in_storage = (setting == 2 || setting == 4) && (p.mask == POLYHEAD_ADDITIVE_MASK || p.score_bias != 0);
}

// Of modifiers, where there are such.
void set_gradients(Problem &p, int setting) {
    p.grad_score_bias = p.score_bias != 0 && (setting == 1 || setting == 2);
    p.grad_sinks = p.sinks != 0 && (setting == 1 || setting == 2);
    p.grad_alibi = p.alibi != 0 && (setting == 1 || setting == 3);
    p.grad_gate = p.gate != 0 && (setting == 1 || setting == 3);
    p.grad_query_norm = p.query_norm != 0 && (setting == 1 || setting == 4);
    p.grad_key_norm = p.key_norm != 0 && (setting == 1 || setting == 4);
}

// Those of sdpa, then those that ask for gradients.
Feature gradient_expressions() {
    Feature feature{
        "expression", {"none"}, [](Problem &p, int setting) {
            const size_t i = static_cast<size_t>(setting), forward = expression_cases().size();
            p.expression = i == 0 ? nullptr : i <= forward ? expression_cases()[i - 1].text : table_cases()[i - 1 - forward].text;
        }};
    for (const std::vector<ExpressionCase> *const cases : {&expression_cases(), &table_cases()}) {
        for (const ExpressionCase &one : *cases) {
            feature.settings.push_back(one.name);
        }
    }
    return feature;
}

std::vector<Feature> make_gradient_features() {
    std::vector<Feature> all = {
        {"heads", {"equal", "grouped", "one for keys", "groups of one", "groups of three", "any groups"}, set_gradient_heads},
        {"dims", {"16", "24 and 8", "8 and 32", "7 and 5", "64", "1", "33 and 48", "80", "40 and 128", "130 and 3"}, set_gradient_dims},
    };
    for (const Feature &feature : features()) { // of sdpa without what the table of fields refuses
        for (const std::string name :
             {"causal", "kv_lengths", "window", "position_offsets", "mask", "score_bias", "softcap", "alibi", "sinks", "rope", "expression",
              "lengths", "query_norm", "key_norm", "value_norm", "value_in_key", "head_gate", "gate"}) {
            if (feature.name == name) {
                all.push_back(name == "expression" ? gradient_expressions() : feature);
            }
        }
    }
    all.push_back({"gradients", {"three", "all", "bias and sinks", "slopes and gate", "norms"}, set_gradients});
    all.push_back({"dtype", {"f32", "bf16", "bf16 additive", "f16", "f16 additive", "f32"}, set_dtype});
    return all;
}

std::vector<FeatureRow> make_rows(const std::vector<Feature> &of, int count, uint64_t seed) {
    std::vector<int> settings;
    for (const Feature &feature : of) {
        settings.push_back(static_cast<int>(feature.settings.size()));
    }
    return pairwise_rows(settings, count, seed);
}

Problem problem_of(const std::vector<Feature> &of, const FeatureRow &row, Problem p) {
    for (size_t i = 0; i < row.size(); i++) {
        of[i].apply(p, row[i]);
    }
    return p;
}

} // namespace

const std::vector<Feature> &features() {
    static const std::vector<Feature> all = make_features();
    return all;
}

const std::vector<FeatureRow> &feature_rows() {
    static const std::vector<FeatureRow> rows = make_rows(features(), number_of_rows, 1);
    return rows;
}

const std::vector<Feature> &gradient_features() {
    static const std::vector<Feature> all = make_gradient_features();
    return all;
}

const std::vector<FeatureRow> &gradient_rows() {
    static const std::vector<FeatureRow> rows = make_rows(gradient_features(), number_of_gradient_rows, 2);
    return rows;
}

Problem gradient_problem(const FeatureRow &row) {
    return problem_of(gradient_features(), row, backward_problem(1, 1));
}

int number_of_model_problems() {
    return rows_with_every_setting * static_cast<int>(std::size(model_head_dims));
}

Problem model_problem(int number) {
    Problem p = feature_problem(feature_rows()[static_cast<size_t>(number % rows_with_every_setting)]);
    const int32_t head_dim = model_head_dims[number / rows_with_every_setting];
    p.rotary_dim = p.rope == POLYHEAD_NO_ROPE ? 0 : p.rotary_dim < p.head_dim / 2 * 2 ? head_dim / 2 : head_dim;
    p.head_dim_v = p.head_dim < p.head_dim_v ? 2 * head_dim : head_dim;
    p.head_dim = head_dim;
    if (p.rope_sections != POLYHEAD_NO_SECTIONS) {
        set_sections(p, p.rope_sections);
    }
    p.num_kv_heads = p.num_kv_heads == 3 ? 16 : p.num_kv_heads == 2 ? 4 : 1;
    p.num_heads = 16;
    return p;
}

Problem feature_problem(const FeatureRow &row) {
    return problem_of(features(), row, sdpa_problem(1, 1));
}

} // namespace polyhead::test
