// Problem: completion and refusal.
#include "problem.h"

#include <iterator>

#include "../contract/dtypes.h"
#include "../contract/problem_fields.h"
#include "../contract/rope_sections.h"
#include "language/expression.h"
#include "language/reads.h"

namespace polyhead::gen {

namespace {

using contract::FieldKind;
using contract::ProblemField;

std::string number(const char *name, int value) {
    return std::string(name) + " " + std::to_string(value);
}

template <class... Sentences> std::string first(const Sentences &...sentences) {
    std::string found;
    ((found.empty() ? void(found = sentences) : void()), ...);
    return found;
}

// A field by itself.
std::string refuse_field(const Problem &p, const ProblemField &field) {
    const int value = p.*field.value;
    if (field.value != &Problem::op && !field.belongs_to(p.op)) {
        return value == 0 ? "" : std::string(field.name) + " is not a parameter of op " + contract::op_name(p.op);
    }
    const bool heads = field.value == &Problem::num_heads || field.value == &Problem::num_kv_heads;
    const bool free = contract::free_heads(p) && (p.group_size > 0 || p.free_group_size != 0) && heads;
    if (free && value == 0) {
        return "";
    }
    const bool chooses = field.kind == FieldKind::choice;
    if (field.kind == FieldKind::yes_no || (chooses ? find_word(field, value) != nullptr : value >= field.low && value <= field.high)) {
        return "";
    }
    const bool is_dtype = field.value == &Problem::dtype;
    return std::string(field.name) + " " + (is_dtype ? dtype_name(value) : std::to_string(value)) + " is not allowed: expected " +
           (chooses ? words_of(field) : std::to_string(field.low) + " to " + std::to_string(field.high));
}

// With free_group_size a call gives these numbers. Scratch memory of score outputs is in blocks of the queries of a head.
std::string refuse_beside_free_group_size(const Problem &p) {
    for (const auto &[name, value] :
         {std::pair("num_heads", p.num_heads), std::pair("num_kv_heads", p.num_kv_heads), std::pair("group_size", p.group_size)}) {
        if (value != 0) {
            return "free_group_size is not allowed with " + number(name, value) + ": a call gives this number";
        }
    }
    const char *const output = p.scores != POLYHEAD_NO_SCORES ? "scores" : p.weights_mean != 0 ? "weights_mean" : nullptr;
    return output ? "free_group_size is not allowed with " + std::string(output) + ": expected group_size, or num_heads" : "";
}

std::string refuse_heads(const Problem &p) {
    if (p.free_group_size != 0) {
        return refuse_beside_free_group_size(p);
    }
    if (p.group_size != 0 && (p.num_heads != 0 || p.num_kv_heads != 0)) {
        return number("group_size", p.group_size) + " is not allowed with " +
               (p.num_heads != 0 ? number("num_heads", p.num_heads) : number("num_kv_heads", p.num_kv_heads)) +
               ": it belongs to a number of heads that is free at run time";
    }
    return p.num_kv_heads != 0 && p.num_heads % p.num_kv_heads != 0
               ? number("num_heads", p.num_heads) + " is not a multiple of " + number("num_kv_heads", p.num_kv_heads)
               : "";
}

std::string refuse_value(const Problem &p) {
    return p.value_in_key != 0 && p.head_dim_v > p.head_dim ? number("head_dim_v", p.head_dim_v) + " is larger than " +
                                                                  number("head_dim", p.head_dim) + ": value_in_key takes it from key"
                                                            : "";
}

std::string refuse_pages(const Problem &p) {
    if (p.page_size > 0 && contract::is_attention_layer(p) && p.cache == 0) {
        return number("page_size", p.page_size) + " is not allowed without cache: a layer of its own keys has no pages";
    }
    if (p.page_size > 0 && (p.page_size & (p.page_size - 1)) != 0) {
        return number("page_size", p.page_size) + " is not a power of two";
    }
    return p.page_size > 0 && p.seq_len_kv > 0 ? number("seq_len_kv", p.seq_len_kv) + " is not allowed with " +
                                                     number("page_size", p.page_size) + ": a page table has any length"
                                               : "";
}

// The valid keys of a layer with a cache are those that were there and those of the call.
std::string refuse_cache(const Problem &p) {
    if (p.cache == 0) {
        return "";
    }
    const char *other = p.cross != 0 ? "cross" : p.kv_lengths != 0 ? "kv_lengths" : nullptr;
    if (other) {
        return "cache is not allowed with " + std::string(other) +
               (p.cross != 0 ? ": only a self-attention layer appends its keys" : ": cache_lengths say which keys are valid");
    }
    return p.seq_len_kv > 0 ? number("seq_len_kv", p.seq_len_kv) + " is not allowed with cache: a cache has any capacity" : "";
}

std::string refuse_scales(const Problem &p) {
    if (p.scale_channels == 0) {
        return "";
    }
    if (p.int8_cache == 0) {
        return number("scale_channels", p.scale_channels) + " is not allowed without int8_cache";
    }
    if (p.scale_channels != 32 && p.scale_channels != 64) {
        return number("scale_channels", p.scale_channels) + " is not allowed: expected 0, 32 or 64";
    }
    for (const auto &[name, dim] : {std::pair("head_dim", p.head_dim), std::pair("head_dim_v", p.head_dim_v)}) {
        if (dim % p.scale_channels != 0) {
            return number(name, dim) + " is not a multiple of " + number("scale_channels", p.scale_channels);
        }
    }
    return "";
}

std::string refuse_layer(const Problem &p) {
    if (!contract::attends_itself(p)) {
        return "";
    }
    if (p.kdim != p.embed_dim || p.vdim != p.embed_dim) {
        const bool key = p.kdim != p.embed_dim;
        return number(key ? "kdim" : "vdim", key ? p.kdim : p.vdim) + " differs from " + number("embed_dim", p.embed_dim) +
               ": only a cross layer has key and value inputs of their own";
    }
    return p.seq_len_q == p.seq_len_kv || p.cache != 0 ? ""
                                                       : number("seq_len_kv", p.seq_len_kv) + " differs from " +
                                                             number("seq_len_q", p.seq_len_q) + ": a self-attention layer has one length";
}

std::string refuse_masks(const Problem &p) {
    const auto without = [](const char *name, int value, const char *of, bool exists) {
        static const char *words[] = {"none", "q", "kv", "q,kv"};
        return value != 0 && !exists ? std::string(name) + " " + words[value] + " is not allowed without " + of : "";
    };
    if (p.additive_in_storage != 0 && p.mask != POLYHEAD_ADDITIVE_MASK && p.score_bias == 0) {
        return "additive_in_storage is not allowed without an additive mask or score_bias";
    }
    return first(without("mask_broadcast", p.mask_broadcast, "mask", p.mask != POLYHEAD_NO_MASK),
                 without("score_bias_broadcast", p.score_bias_broadcast, "score_bias", p.score_bias != 0));
}

std::string refuse_sections(const Problem &p) {
    const contract::SectionsFault fault = contract::fault_of(contract::sections_of(p), p.rotary_dim / 2);
    return fault.name ? number(fault.name, fault.found) + " is not allowed: expected " + fault.expected : "";
}

std::string refuse_rope(const Problem &p) {
    if (p.rope == POLYHEAD_NO_ROPE) {
        const bool sections = p.rope_sections != POLYHEAD_NO_SECTIONS;
        return sections            ? "rope_sections is not allowed without rope"
               : p.rotary_dim != 0 ? number("rotary_dim", p.rotary_dim) + " is not allowed without rope"
                                   : refuse_sections(p);
    }
    if (p.rotary_dim > p.head_dim) {
        return number("rotary_dim", p.rotary_dim) + " is larger than " + number("head_dim", p.head_dim);
    }
    return p.rotary_dim % 2 == 0 ? refuse_sections(p)
                                 : number("rotary_dim", p.rotary_dim) + " is odd: rope rotates pairs, expected an even number";
}

// A field that is set beside another one.
std::string beside(const char *name, int value, const std::string &other, const char *why) {
    return value == 0 || other.empty() ? "" : std::string(name) + " is not allowed with " + other + ": " + why;
}

std::string refuse_norms(const Problem &p) {
    const char *const norm = p.key_norm != POLYHEAD_NO_NORM ? "key_norm" : p.value_norm != 0 ? "value_norm" : nullptr;
    if (norm && contract::by_heads(p)) { // a norm of query alone goes with any keys
        const std::string stored = p.page_size > 0 ? number("page_size", p.page_size) : p.int8_cache != 0 ? "int8_cache" : "";
        const std::string found = first(beside(norm, 1, stored, "a cache has keys and values after their norm"),
                                        beside(norm, 1, p.value_in_key != 0 ? "value_in_key" : "", "key and value are one tensor"));
        if (!found.empty()) {
            return found;
        }
    }
    return p.norm_of_projection != 0 && p.query_norm == POLYHEAD_NO_NORM && p.key_norm == POLYHEAD_NO_NORM
               ? "norm_of_projection is not allowed without query_norm or key_norm"
               : "";
}

std::string refuse_shared(const Problem &p) {
    if (p.value_from_key != 0 && p.head_dim_v != p.head_dim) {
        return number("head_dim_v", p.head_dim_v) + " differs from " + number("head_dim", p.head_dim) +
               ": value_from_key takes it from key";
    }
    if (p.shared_cache != 0 && p.cache == 0) {
        return "shared_cache is not allowed without cache";
    }
    const char *const written = "another layer writes the cache";
    return first(beside("value_from_key", p.value_from_key, p.cross != 0 ? "cross" : "", "a cross layer has an input of values"),
                 beside("shared_cache", p.shared_cache, p.value_from_key != 0 ? "value_from_key" : "", written),
                 beside("shared_cache", p.shared_cache, p.key_norm != POLYHEAD_NO_NORM ? "key_norm" : "", written),
                 beside("shared_cache", p.shared_cache, p.value_norm != 0 ? "value_norm" : "", written));
}

std::string refuse_keep_heads(const Problem &p) {
    return first(
        beside("keep_heads", p.keep_heads, p.cache != 0 ? "cache" : "", "gradients of a cache are not computed"),
        beside("keep_heads", p.keep_heads, p.value_from_key != 0 ? "value_from_key" : "", "mha_backward has weights of value"),
        beside("keep_heads", p.keep_heads, p.norm_of_projection != 0 ? "norm_of_projection" : "", "mha_backward has norms of heads"));
}

std::string refuse_gradients(const Problem &p) {
    const auto without = [](const char *name, int value, const char *of, bool exists) {
        return value != 0 && !exists ? std::string(name) + " is not allowed without " + of : "";
    };
    return first(without("grad_score_bias", p.grad_score_bias, "score_bias", p.score_bias != 0),
                 without("grad_alibi", p.grad_alibi, "alibi", p.alibi != 0), without("grad_sinks", p.grad_sinks, "sinks", p.sinks != 0),
                 without("grad_gate", p.grad_gate, "gate", p.gate != POLYHEAD_NO_GATE),
                 without("grad_query_norm", p.grad_query_norm, "query_norm", p.query_norm != POLYHEAD_NO_NORM),
                 without("grad_key_norm", p.grad_key_norm, "key_norm", p.key_norm != POLYHEAD_NO_NORM));
}

std::string refuse_expression(const Problem &p) {
    if (!p.expression) {
        return "";
    }
    Expression expression;
    if (!contract::attends(p)) {
        return std::string("expression is not a parameter of op ") + contract::op_name(p.op);
    }
    const std::string found = Expression::parse(p.expression, "expression", &expression);
    if (!found.empty() || !contract::is_backward(p)) {
        return found;
    }
    return expression.has_slope() ? language::table_refusal(*expression.program(), p)
                                  : "expression: the score of a C++ source has no derivative: expected a text";
}

} // namespace

std::string dtype_name(int dtype) {
    const contract::DTypeRow *const row = contract::find_dtype(dtype);
    return row ? row->name : std::to_string(dtype);
}

std::string refusal(const Problem &p) {
    for (const ProblemField &field : contract::problem_fields) { // the operation comes first
        const std::string found = refuse_field(p, field);
        if (!found.empty()) {
            return found;
        }
    }
    return first(refuse_heads(p), refuse_value(p), refuse_pages(p), refuse_cache(p), refuse_scales(p), refuse_layer(p), refuse_masks(p),
                 refuse_rope(p), refuse_norms(p), refuse_shared(p), refuse_keep_heads(p), refuse_gradients(p), refuse_expression(p));
}

std::string complete(Problem *p) {
    if (contract::is_attention_layer(*p) && p->head_dim == 0 && p->num_heads > 0 && p->embed_dim > 0 && p->embed_dim % p->num_heads != 0) {
        return number("embed_dim", p->embed_dim) + " is not divisible by " + number("num_heads", p->num_heads);
    }
    p->size = sizeof *p;
    *p = contract::written_out(*p);
    p->expression = p->expression && p->expression[0] ? p->expression : nullptr;
    if (contract::attends_itself(*p) && !p->cache && (p->seq_len_q == 0) != (p->seq_len_kv == 0)) {
        p->seq_len_q = p->seq_len_kv = p->seq_len_q + p->seq_len_kv;
    }
    return refusal(*p);
}

} // namespace polyhead::gen
