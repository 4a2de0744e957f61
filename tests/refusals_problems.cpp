// Problems that the generator refuses, and the sentence it says: the parameter, the value found, what is allowed.
#include <functional>

#include "instruments/calls/problems.h"
#include "plan/plan.h"
#include "plan/problem.h"
#include "refusals.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

struct Refused {
    const char *what;
    Problem problem;
    std::vector<std::string> parts; // of the sentence
};

Problem with(Problem problem, const std::function<void(Problem &)> &change) {
    change(problem);
    return problem;
}

std::vector<Refused> refused_problems() {
    const Problem sdpa = sdpa_problem(4, 64);
    return {
        {"not divisible", layer(770, 12), {"embed_dim 770 is not divisible by num_heads 12"}},
        {"embed_dim 0", layer(0, 12), {"embed_dim 0", "expected 1"}},
        {"embed_dim negative", layer(-768, 12), {"embed_dim -768", "expected 1"}},
        {"num_heads 0", layer(768, 0), {"num_heads 0", "1 to 128"}},
        {"num_heads negative", with(sdpa, [](Problem &p) { p.num_heads = p.num_kv_heads = -1; }), {"num_heads -1", "1 to 128"}},
        {"num_heads 129", sdpa_problem(129, 8), {"num_heads 129", "1 to 128"}},
        {"not a multiple", sdpa_problem(12, 64, 5), {"num_heads 12", "multiple of num_kv_heads 5"}},
        {"more kv heads than heads", sdpa_problem(4, 64, 8), {"num_heads 4", "multiple of num_kv_heads 8"}},
        {"num_kv_heads negative", with(sdpa, [](Problem &p) { p.num_kv_heads = -2; }), {"num_kv_heads -2", "1 to 128"}},
        {"value in a key that is narrower",
         with(sdpa, [](Problem &p) { p.value_in_key = 1, p.head_dim_v = 80; }),
         {"head_dim_v 80", "head_dim 64", "value_in_key"}},
        {"value in key of a layer", with(layer(64, 4), [](Problem &p) { p.value_in_key = 1; }), {"value_in_key", "mha"}},
        {"pages of a size that is no power of two", with(sdpa, [](Problem &p) { p.page_size = 24; }), {"page_size 24", "power of two"}},
        {"pages that are too large", with(sdpa, [](Problem &p) { p.page_size = 2048; }), {"page_size 2048", "0 to 1024"}},
        {"pages of a fixed length", with(sdpa, [](Problem &p) { p.page_size = 16, p.seq_len_kv = 64; }), {"seq_len_kv 64", "page_size 16"}},
        {"pages of a layer", with(layer(64, 4), [](Problem &p) { p.page_size = 16; }), {"page_size 16", "without cache"}},
        {"head_dim 577", sdpa_problem(4, 577), {"head_dim 577", "1 to 576"}},
        {"head_dim 0", sdpa_problem(4, 0), {"head_dim 0", "1 to 576"}},
        {"head_dim negative", sdpa_problem(4, -64), {"head_dim -64", "1 to 576"}},
        {"head_dim of a layer too large", layer(1154, 2), {"head_dim 577", "1 to 576"}},
        {"head_dim_v 577", with(sdpa, [](Problem &p) { p.head_dim_v = 577; }), {"head_dim_v 577", "1 to 576"}},
        {"head_dim_v negative", with(sdpa, [](Problem &p) { p.head_dim_v = -3; }), {"head_dim_v -3", "1 to 576"}},
        {"kdim negative", with(layer(64, 4), [](Problem &p) { p.cross = 1, p.kdim = -7; }), {"kdim -7", "expected 1"}},
        {"vdim negative", with(layer(64, 4), [](Problem &p) { p.cross = 1, p.vdim = -9; }), {"vdim -9", "expected 1"}},
        {"kdim without cross", with(layer(64, 4), [](Problem &p) { p.kdim = 32; }), {"kdim 32", "cross"}},
        {"vdim without cross", with(layer(64, 4), [](Problem &p) { p.vdim = 33; }), {"vdim 33", "cross"}},
        {"out_features 0", linear_problem(64, 0), {"out_features 0", "expected 1"}},
        {"linear embed_dim 0", linear_problem(0, 64), {"embed_dim 0", "expected 1"}},
        {"seq_len_q negative", with(sdpa, [](Problem &p) { p.seq_len_q = -5; }), {"seq_len_q -5", "expected 0"}},
        {"seq_len_kv negative", with(sdpa, [](Problem &p) { p.seq_len_kv = -1; }), {"seq_len_kv -1", "expected 0"}},
        {"two lengths of a self-attention layer",
         with(layer(64, 4), [](Problem &p) { p.seq_len_q = 5, p.seq_len_kv = 6; }),
         {"seq_len_kv 6", "seq_len_q 5"}},
        {"causal 3", with(sdpa, [](Problem &p) { p.causal = 3; }), {"causal 3", "bottom_right", "top_left"}},
        {"op 9", with(sdpa, [](Problem &p) { p.op = 9; }), {"op 9", "sdpa", "mha", "linear"}},
        {"dtype i8", with(sdpa, [](Problem &p) { p.dtype = POLYHEAD_I8; }), {"dtype i8", "expected f32, f16 or bf16"}},
        {"dtype i32", with(sdpa, [](Problem &p) { p.dtype = POLYHEAD_I32; }), {"dtype i32", "expected f32"}},
        {"embed_dim of sdpa", with(sdpa, [](Problem &p) { p.embed_dim = 256; }), {"embed_dim", "sdpa"}},
        {"cross of sdpa", with(sdpa, [](Problem &p) { p.cross = 1; }), {"cross", "sdpa"}},
        {"lse of linear", with(linear_problem(8, 8), [](Problem &p) { p.lse = 1; }), {"lse", "linear"}},
        {"causal of linear", with(linear_problem(8, 8), [](Problem &p) { p.causal = 1; }), {"causal", "linear"}},
        {"num_heads of linear", with(linear_problem(8, 8), [](Problem &p) { p.num_heads = 2; }), {"num_heads", "linear"}},
    };
}

// Numbers of heads that are free at run time.
std::vector<Refused> refused_free_heads() {
    const Problem sdpa = sdpa_problem(4, 64);
    return {
        {"group_size of heads that are built in", with(sdpa, [](Problem &p) { p.group_size = 4; }), {"group_size 4", "num_heads 4"}},
        {"group_size and num_kv_heads",
         with(sdpa, [](Problem &p) { p.num_heads = 0, p.num_kv_heads = p.group_size = 2; }),
         {"group_size 2", "num_kv_heads 2"}},
        {"group_size of a layer", with(layer(64, 0), [](Problem &p) { p.group_size = 2; }), {"num_heads 0"}},
        {"group_size 129",
         with(sdpa, [](Problem &p) { p.num_heads = p.num_kv_heads = 0, p.group_size = 129; }),
         {"group_size 129", "0 to 128"}},
        {"free_group_size and num_heads", with(sdpa, [](Problem &p) { p.free_group_size = 1; }), {"free_group_size", "with num_heads 4"}},
        {"free_group_size and group_size",
         with(sdpa, [](Problem &p) { p.num_heads = p.num_kv_heads = 0, p.group_size = 4, p.free_group_size = 1; }),
         {"free_group_size", "with group_size 4"}},
        {"free_group_size and num_kv_heads",
         with(sdpa, [](Problem &p) { p.num_heads = 0, p.num_kv_heads = 4, p.free_group_size = 1; }),
         {"free_group_size", "with num_kv_heads 4"}},
        {"free_group_size of a layer", with(layer(64, 4), [](Problem &p) { p.free_group_size = 1; }), {"free_group_size", "op mha"}},
        {"free_group_size and scores",
         with(sdpa, [](Problem &p) { p.num_heads = p.num_kv_heads = 0, p.free_group_size = 1, p.scores = POLYHEAD_LOGITS; }),
         {"free_group_size", "scores", "expected group_size"}},
    };
}

// Layers that append to a cache.
std::vector<Refused> refused_caches() {
    const Problem sdpa = sdpa_problem(4, 64);
    return {
        {"a cache of bare attention", with(sdpa, [](Problem &p) { p.cache = 1; }), {"cache", "not a parameter of op sdpa"}},
        {"a cache of a cross layer", with(layer(64, 4), [](Problem &p) { p.cache = p.cross = 1; }), {"cache", "with cross"}},
        {"key lengths beside a cache", with(layer(64, 4), [](Problem &p) { p.cache = p.kv_lengths = 1; }), {"kv_lengths", "cache_lengths"}},
        {"a cache of a fixed length",
         with(layer(64, 4), [](Problem &p) { p.cache = 1, p.seq_len_kv = 64; }),
         {"seq_len_kv 64", "capacity"}},
    };
}

// Gates, norms, and layers without keys or values of their own.
std::vector<Refused> refused_norms() {
    const Problem sdpa = sdpa_problem(4, 64), cached = with(layer(64, 4), [](Problem &p) { p.cache = 1; });
    return {
        {"gate 3", with(sdpa, [](Problem &p) { p.gate = 3; }), {"gate 3", "none, heads or entries"}},
        {"query_norm 4", with(sdpa, [](Problem &p) { p.query_norm = 4; }), {"query_norm 4", "none, rms, rms_plus_one or layer"}},
        {"a norm of the projection of bare attention",
         with(sdpa, [](Problem &p) { p.query_norm = p.norm_of_projection = 1; }),
         {"norm_of_projection is not a parameter of op sdpa"}},
        {"a norm of the projection and no norm",
         with(layer(64, 4), [](Problem &p) { p.norm_of_projection = 1; }),
         {"norm_of_projection", "without query_norm or key_norm"}},
        {"a norm of keys in pages",
         with(sdpa, [](Problem &p) { p.key_norm = 1, p.page_size = 16; }),
         {"key_norm is not allowed with page_size 16", "after their norm"}},
        {"a norm of values of int8",
         with(sdpa, [](Problem &p) { p.value_norm = p.int8_cache = 1; }),
         {"value_norm is not allowed with int8_cache"}},
        {"a norm of keys that have the values",
         with(sdpa, [](Problem &p) { p.key_norm = p.value_in_key = 1; }),
         {"key_norm is not allowed with value_in_key"}},
        {"value_from_key of another width",
         with(layer(64, 4), [](Problem &p) { p.value_from_key = 1, p.head_dim_v = 8; }),
         {"head_dim_v 8 differs from head_dim 16", "value_from_key"}},
        {"value_from_key of a cross layer",
         with(layer(64, 4), [](Problem &p) { p.value_from_key = p.cross = 1; }),
         {"value_from_key is not allowed with cross"}},
        {"a shared cache without cache",
         with(layer(64, 4), [](Problem &p) { p.shared_cache = 1; }),
         {"shared_cache is not allowed without cache"}},
        {"a norm of keys that another layer wrote",
         with(cached, [](Problem &p) { p.shared_cache = p.key_norm = 1; }),
         {"shared_cache is not allowed with key_norm", "another layer writes the cache"}},
        {"values from keys that another layer wrote",
         with(cached, [](Problem &p) { p.shared_cache = p.value_from_key = 1; }),
         {"shared_cache is not allowed with value_from_key"}},
        {"a gate of a linear layer", with(linear_problem(8, 8), [](Problem &p) { p.gate = 1; }), {"gate is not a parameter of op linear"}},
    };
}

// Masks, modifiers, outputs and expressions.
std::vector<Refused> refused_features() {
    const Problem sdpa = sdpa_problem(4, 64);
    std::vector<Refused> list = {
        {"mask 3", with(sdpa, [](Problem &p) { p.mask = 3; }), {"mask 3", "none, bool or additive"}},
        {"mask -1", with(sdpa, [](Problem &p) { p.mask = -1; }), {"mask -1", "none, bool or additive"}},
        {"broadcast without mask", with(sdpa, [](Problem &p) { p.mask_broadcast = 1; }), {"mask_broadcast q", "without mask"}},
        {"storage without additive tensors",
         with(sdpa, [](Problem &p) { p.dtype = POLYHEAD_BF16, p.mask = 1, p.additive_in_storage = 1; }),
         {"additive_in_storage", "without an additive mask or score_bias"}},
        {"broadcast 4", with(sdpa, [](Problem &p) { p.mask = 1, p.mask_broadcast = 4; }), {"mask_broadcast 4", "none, q, kv or q,kv"}},
        {"broadcast without score_bias",
         with(sdpa, [](Problem &p) { p.mask = 1, p.score_bias_broadcast = 3; }),
         {"score_bias_broadcast q,kv", "without score_bias"}},
        {"rope 5", with(sdpa, [](Problem &p) { p.rope = 5; }), {"rope 5", "interleaved_trailing or half_split_trailing"}},
        {"rotary_dim without rope", with(sdpa, [](Problem &p) { p.rotary_dim = 8; }), {"rotary_dim 8", "without rope"}},
        {"rotary_dim too large", with(sdpa, [](Problem &p) { p.rope = 1, p.rotary_dim = 66; }), {"rotary_dim 66", "head_dim 64"}},
        {"rotary_dim odd", with(sdpa, [](Problem &p) { p.rope = 2, p.rotary_dim = 7; }), {"rotary_dim 7", "even"}},
        {"rotary_dim negative", with(sdpa, [](Problem &p) { p.rope = 2, p.rotary_dim = -2; }), {"rotary_dim -2", "0 to 576"}},
        {"head_dim odd with rope", with(sdpa_problem(4, 33), [](Problem &p) { p.rope = 1; }), {"rotary_dim 33", "even"}},
        {"scores 5", with(sdpa, [](Problem &p) { p.scores = 5; }), {"scores 5", "none, scaled, capped, logits or weights"}},
        {"expression", with(sdpa, [](Problem &p) { p.expression = "score = biaz"; }), {"expression:1:9: ", "unknown name 'biaz'"}},
        {"expression of linear",
         with(linear_problem(8, 8), [](Problem &p) { p.expression = "score = score"; }),
         {"expression is not a parameter of op linear"}},
    };
    const Problem linear = linear_problem(8, 8);
    const std::pair<const char *, int32_t Problem::*> of_attention[] = {{"window", &Problem::window},
                                                                        {"position_offsets", &Problem::position_offsets},
                                                                        {"mask", &Problem::mask},
                                                                        {"mask_broadcast", &Problem::mask_broadcast},
                                                                        {"score_bias", &Problem::score_bias},
                                                                        {"score_bias_broadcast", &Problem::score_bias_broadcast},
                                                                        {"softcap", &Problem::softcap},
                                                                        {"alibi", &Problem::alibi},
                                                                        {"sinks", &Problem::sinks},
                                                                        {"rope", &Problem::rope},
                                                                        {"rotary_dim", &Problem::rotary_dim},
                                                                        {"head_gate", &Problem::head_gate},
                                                                        {"rope_sections", &Problem::rope_sections},
                                                                        {"section_1", &Problem::section_1},
                                                                        {"scores", &Problem::scores},
                                                                        {"weights_mean", &Problem::weights_mean}};
    for (const auto &[name, field] : of_attention) {
        Problem p = linear;
        p.*field = 1;
        list.push_back({name, p, {std::string(name) + " is not a parameter of op linear"}});
    }
    return list;
}

} // namespace

TEST_CASE("generator: wrong problems are refused in one sentence") {
    std::vector<Refused> list = refused_problems();
    for (const std::vector<Refused> &more : {refused_free_heads(), refused_caches(), refused_norms(), refused_features()}) {
        list.insert(list.end(), more.begin(), more.end());
    }
    for (Refused &refused : list) {
        INFO(refused.what);
        const std::string sentence = gen::complete(&refused.problem);
        CHECK(!sentence.empty());
        check_sentence(sentence, refused.parts);
    }
}
