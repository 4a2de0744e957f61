// Writes NAME.json: what the kernel computes, how it was compiled, and its counts of parameters, operations and bytes.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "../contract/apis.h"
#include "../contract/cpu_features.h"
#include "../contract/dtypes.h"
#include "../contract/problem_fields.h"
#include "../plan/named_targets.h"
#include "../plan/text.h"
#include "library.h"

namespace polyhead::tools {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Counts of one problem. Formulas are text in the glossary's names; numbers are per batch row, for fixed lengths only.
struct Counts {
    int64_t parameters = 0;
    std::string flops, bytes;
    bool fixed = false;
    int64_t flops_number = 0, bytes_number = 0;
};

// Bytes of one element of tensors and weights, as a number and as the formulas begin.
int64_t element_bytes(const polyhead_problem &p) {
    return contract::dtype_bytes(p.dtype);
}

std::string times_bytes(const polyhead_problem &p, const std::string &elements) {
    return std::to_string(element_bytes(p)) + "*" + elements;
}

// The same of a cache of int8: the elements of query and out, those of keys, and a scale for each row or block of channels.
std::string int8_formula(const polyhead_problem &p) {
    const std::string keys = p.value_in_key ? "head_dim" : "(head_dim + head_dim_v)";
    const std::string scales = p.scale_channels ? keys + "/scale_channels" : p.value_in_key ? "1" : "2";
    return times_bytes(p, "batch*num_heads*seq_len_q*(head_dim + head_dim_v)") + " + batch*num_kv_heads*seq_len_kv*(" + keys + " + 4*" +
           scales + ")";
}

// (query, key) pairs that take part when every key is valid.
int64_t pairs_of(const polyhead_problem &p) {
    const int64_t seq_len_q = p.seq_len_q, seq_len_kv = p.seq_len_kv;
    if (p.causal == POLYHEAD_NOT_CAUSAL) {
        return seq_len_q * seq_len_kv;
    }
    const int64_t offset = p.causal == POLYHEAD_BOTTOM_RIGHT ? seq_len_kv - seq_len_q : 0;
    int64_t pairs = 0;
    for (int64_t q = 0; q < seq_len_q; q++) {
        pairs += std::clamp<int64_t>(q + offset + 1, 0, seq_len_kv);
    }
    return pairs;
}

Counts count_linear(const polyhead_problem &p) {
    Counts c;
    const int64_t k = p.embed_dim, n = p.out_features;
    c.parameters = k * n + (p.bias ? n : 0);
    c.flops = "2*rows*embed_dim*out_features";
    c.bytes = times_bytes(p, "(rows*(embed_dim + out_features) + parameters)");
    c.fixed = p.seq_len_q > 0;
    c.flops_number = 2 * p.seq_len_q * k * n;
    c.bytes_number = element_bytes(p) * (p.seq_len_q * (k + n) + c.parameters);
    return c;
}

// What a layer keeps for its gradients: its heads, what the output projection reads, and lse.
std::string kept_bytes(const polyhead_problem &p) {
    const char *const gates = p.gate == POLYHEAD_NO_GATE ? "" : p.gate == POLYHEAD_GATE_OF_HEADS ? " + 1" : " + head_dim_v";
    return times_bytes(p, "batch*(num_heads*seq_len_q + num_kv_heads*seq_len_kv)*(head_dim + head_dim_v)") +
           (*gates ? " + " + times_bytes(p, std::string("batch*num_heads*seq_len_q*(0") + gates + ")") : "") +
           " + 4*batch*num_heads*seq_len_q";
}

int64_t kept_bytes_number(const polyhead_problem &p) {
    const int64_t rows = p.seq_len_q,
                  of_token = contract::width_of_queries(p) + contract::width_of_attended(p) + contract::width_of_gates(p),
                  of_key = contract::width_of_keys(p) + contract::width_of_values(p);
    return element_bytes(p) * (rows * of_token + p.seq_len_kv * of_key) + 4 * rows * p.num_heads;
}

// Bytes of the results beside out, always f32.
void count_outputs(const polyhead_problem &p, Counts *c) {
    const int64_t rows = p.seq_len_q, pairs = rows * p.seq_len_kv;
    const auto add = [c](bool exists, const char *formula, int64_t elements) {
        if (exists) {
            c->bytes += std::string(" + 4*") + formula;
            c->bytes_number += 4 * elements;
        }
    };
    add(p.lse != 0 && p.keep_heads == 0, "batch*num_heads*seq_len_q", p.num_heads * rows);
    if (p.keep_heads != 0) {
        c->bytes += " + " + kept_bytes(p);
        c->bytes_number += kept_bytes_number(p);
    }
    add(p.scores != POLYHEAD_NO_SCORES, "batch*num_heads*seq_len_q*seq_len_kv", p.num_heads * pairs);
    add(p.weights_mean != 0, "batch*seq_len_q*seq_len_kv", pairs);
}

void count_attention(const polyhead_problem &p, Counts *c) {
    c->fixed = p.seq_len_q > 0 && p.seq_len_kv > 0 && p.num_heads > 0;
    c->flops = p.causal ? "2*batch*num_heads*pairs*(head_dim + head_dim_v), pairs = query-key pairs under the causal mask"
                        : "2*batch*num_heads*seq_len_q*seq_len_kv*(head_dim + head_dim_v)";
    c->flops_number = 2 * p.num_heads * pairs_of(p) * (p.head_dim + p.head_dim_v);
}

Counts count_sdpa(const polyhead_problem &p) {
    Counts c;
    count_attention(p, &c);
    const int64_t rows = int64_t{p.num_heads} * p.seq_len_q, keys = int64_t{p.num_kv_heads} * p.seq_len_kv,
                  dims = p.head_dim + p.head_dim_v;
    c.bytes = times_bytes(p, p.value_in_key ? "batch*(num_heads*seq_len_q*(head_dim + head_dim_v) + num_kv_heads*seq_len_kv*head_dim)"
                                            : "batch*(num_heads*seq_len_q + num_kv_heads*seq_len_kv)*(head_dim + head_dim_v)");
    c.bytes_number = element_bytes(p) * (rows * dims + keys * (p.value_in_key ? p.head_dim : dims));
    if (p.int8_cache) {
        const int64_t read = p.value_in_key ? p.head_dim : dims, scales = p.scale_channels ? read / p.scale_channels
                                                                          : p.value_in_key ? 1
                                                                                           : 2;
        c.bytes = int8_formula(p);
        c.bytes_number = element_bytes(p) * rows * dims + keys * (read + 4 * scales);
    }
    count_outputs(p, &c);
    return c;
}

// Five products of each pair; query, key and value, out and all gradients once.
Counts count_sdpa_backward(const polyhead_problem &p) {
    Counts c;
    count_attention(p, &c);
    c.flops = p.causal ? "2*batch*num_heads*pairs*(3*head_dim + 2*head_dim_v), pairs = query-key pairs under the causal mask"
                       : "2*batch*num_heads*seq_len_q*seq_len_kv*(3*head_dim + 2*head_dim_v)";
    c.flops_number = 2 * p.num_heads * pairs_of(p) * (3 * p.head_dim + 2 * p.head_dim_v);
    const int64_t rows = int64_t{p.num_heads} * p.seq_len_q, keys = int64_t{p.num_kv_heads} * p.seq_len_kv;
    c.bytes = times_bytes(p, "batch*(num_heads*seq_len_q + num_kv_heads*seq_len_kv)*2*(head_dim + head_dim_v)") +
              " + 4*batch*num_heads*seq_len_q";
    c.bytes_number = element_bytes(p) * (rows + keys) * 2 * (p.head_dim + p.head_dim_v) + 4 * rows;
    return c;
}

// Multiply-adds of the linear layers of a layer: of each query and of each key.
struct LayerProducts {
    int64_t of_queries, of_keys;
};

LayerProducts layer_products(const polyhead_problem &p) {
    const int64_t of_heads = contract::width_of_queries(p) + contract::width_of_attended(p) + contract::width_of_gates(p);
    return {p.embed_dim * of_heads, int64_t(p.kdim) * contract::width_of_keys(p) + int64_t(p.vdim) * contract::width_of_values(p)};
}

// Two products of each linear layer and five of each pair; inputs, heads, out and weights, and all their gradients once.
Counts count_mha_backward(const polyhead_problem &p) {
    Counts c = count_sdpa_backward(p);
    const auto [of_queries, of_keys] = layer_products(p);
    const char *const gates = p.gate == POLYHEAD_NO_GATE ? "" : p.gate == POLYHEAD_GATE_OF_HEADS ? " + 1" : " + head_dim_v";
    c.flops += " + 4*batch*(seq_len_q*embed_dim*num_heads*(head_dim + head_dim_v" + std::string(gates) +
               ") + seq_len_kv*num_kv_heads*(kdim*head_dim + vdim*head_dim_v))";
    c.flops_number += 4 * (p.seq_len_q * of_queries + p.seq_len_kv * of_keys);
    const int64_t biases = contract::width_of_queries(p) + contract::width_of_keys(p) + contract::width_of_values(p) +
                           contract::width_of_gates(p) + p.embed_dim;
    c.parameters = of_queries + of_keys + (p.bias ? biases : 0);
    const int64_t weight = contract::dtype_bytes(contract::weight_dtype(p)),
                  inputs = 3 * p.embed_dim * int64_t(p.seq_len_q) + (p.cross ? 2 * int64_t(p.kdim + p.vdim) * p.seq_len_kv : 0);
    c.bytes = kept_bytes(p) + " + " +
              times_bytes(p, p.cross ? "batch*(3*seq_len_q*embed_dim + 2*seq_len_kv*(kdim + vdim))" : "batch*3*seq_len_q*embed_dim") +
              " + " + std::to_string(weight) + "*2*parameters";
    c.bytes_number = kept_bytes_number(p) + element_bytes(p) * inputs + weight * 2 * c.parameters;
    return c;
}

// Two products of each row; input, grad_out and weight, and all gradients once.
Counts count_linear_backward(const polyhead_problem &p) {
    Counts c = count_linear(p);
    const int64_t k = p.embed_dim, n = p.out_features, weight = contract::dtype_bytes(contract::weight_dtype(p));
    c.flops = "4*rows*embed_dim*out_features";
    c.flops_number *= 2;
    c.bytes = times_bytes(p, "rows*(2*embed_dim + out_features)") + " + " + std::to_string(weight) + "*2*embed_dim*out_features" +
              (p.bias ? " + 4*out_features" : "");
    c.bytes_number = element_bytes(p) * p.seq_len_q * (2 * k + n) + weight * 2 * k * n + (p.bias ? 4 * n : 0);
    return c;
}

Counts count_mha(const polyhead_problem &p) {
    Counts c;
    count_attention(p, &c);
    const contract::WeightLayout layout = contract::weight_layout(p);
    const int64_t embed = p.embed_dim, kdim = p.kdim, vdim = p.vdim;
    int64_t of_queries = 0, of_keys = 0; // multiply-adds of the projections of a token
    for (const contract::WeightSection contract::WeightLayout::*section : contract::WeightLayout::sections) {
        const contract::WeightSection &s = layout.*section;
        const bool keys = section == &contract::WeightLayout::key || section == &contract::WeightLayout::value;
        (keys ? of_keys : of_queries) += s.heads * s.head_width * s.depth;
        c.parameters += s.heads * s.head_width * (s.depth + (p.bias ? 1 : 0));
    }
    // With a cache seq_len_kv is its capacity, and never fixed: the numbers are those of the other layers.
    const char *const gate = p.gate == POLYHEAD_GATE_OF_HEADS ? " + 1" : p.gate != POLYHEAD_NO_GATE ? " + head_dim_v" : "";
    c.flops += " + 2*batch*(seq_len_q*embed_dim*num_heads*(head_dim + head_dim_v" + std::string(gate) + ")";
    if (contract::projects_key(p)) {
        c.flops += std::string(" + ") + (p.cache ? "seq_len_q" : "seq_len_kv");
        c.flops += contract::projects_value(p) ? "*num_kv_heads*(kdim*head_dim + vdim*head_dim_v)" : "*num_kv_heads*kdim*head_dim";
    }
    c.flops += ")";
    c.flops_number += 2 * (p.seq_len_q * of_queries + p.seq_len_kv * of_keys);
    c.bytes = times_bytes(p, p.cross   ? "(batch*(2*seq_len_q*embed_dim + seq_len_kv*(kdim + vdim)) + parameters)"
                             : p.cache ? "(2*batch*seq_len_q*embed_dim + parameters"
                                         " + batch*num_kv_heads*(seq_len_q + seq_len_kv)*(head_dim + head_dim_v))"
                                       : "(2*batch*seq_len_q*embed_dim + parameters)");
    c.bytes_number = element_bytes(p) * (2 * p.seq_len_q * embed + (p.cross ? p.seq_len_kv * (kdim + vdim) : 0) + c.parameters);
    count_outputs(p, &c);
    return c;
}

Counts counts_of(const polyhead_problem &p) {
    return !contract::attends(p)      ? contract::is_backward(p) ? count_linear_backward(p) : count_linear(p)
                : contract::is_backward(p) ? contract::by_heads(p) ? count_sdpa_backward(p) : count_mha_backward(p)
                : contract::by_heads(p) ? count_sdpa(p)
                                      : count_mha(p);
}

OrderedJson value_json(const contract::ProblemField &field, int32_t value) {
    switch (field.kind) {
    case contract::FieldKind::yes_no:
        return value != 0;
    case contract::FieldKind::choice:
        return contract::word_of(field, value);
    case contract::FieldKind::length:
        return value > 0 ? OrderedJson(value) : OrderedJson("free");
    case contract::FieldKind::number:
        break;
    }
    return value;
}

OrderedJson problem_json(const Library &library) {
    const polyhead_problem &p = library.problem;
    OrderedJson j;
    for (const contract::ProblemField &field : contract::problem_fields) {
        if (field.belongs_to(p.op)) {
            const bool is_rows = !contract::attends(p) && field.value == &polyhead_problem::seq_len_q;
            j[is_rows ? "rows" : field.name] = value_json(field, p.*field.value);
        }
    }
    if (p.expression) {
        j["expression"] = readable(p.expression);
        if (!library.expression_source.empty()) {
            j["expression_source"] = readable(library.expression_source);
        }
        j["expression_tensors"] = OrderedJson::array();
        for (const gen::ExpressionTensor &tensor : library.expression.tensors()) {
            static const char *const names[] = {"free", "b", "h", "q", "kv"}; // of POLYHEAD_EXTENT_, downwards from 0
            OrderedJson shape = OrderedJson::array();
            for (int i = 0; i < tensor.rank; i++) {
                shape.push_back(tensor.extents[i] > 0 ? OrderedJson(tensor.extents[i]) : OrderedJson(names[-tensor.extents[i]]));
            }
            j["expression_tensors"].push_back({{"name", tensor.name}, {"dtype", gen::dtype_name(tensor.dtype)}, {"shape", shape}});
            if (tensor.gradient && contract::is_backward(p)) {
                j["expression_tensors"].back()["gradient"] = tensor.gradient_name();
            }
        }
    }
    return j;
}

OrderedJson features_json(uint64_t bits) {
    OrderedJson j = OrderedJson::array();
    for (const contract::CpuFeature &feature : contract::cpu_feature_table) {
        if ((bits & feature.bit) != 0) {
            j.push_back(feature.name);
        }
    }
    return j;
}

// What a call takes beside its threads: the sum over these, each for every batch row and begun block.
OrderedJson described_term(const polyhead_scratch_term &term) {
    return {{"bytes", term.bytes}, {"row_block", term.row_block}, {"key_block", term.key_block}, {"in_window", term.in_window != 0}};
}

OrderedJson scratch_json(const polyhead_scratch &scratch) {
    OrderedJson terms = OrderedJson::array();
    for (const polyhead_scratch_term &term : scratch.terms) {
        if (term.bytes > 0) {
            terms.push_back(described_term(term));
        }
    }
    return terms;
}

OrderedJson variant_json(const LibraryVariant &v) {
    OrderedJson j;
    j["name"] = v.name;
    j["symbol"] = v.compiled.symbol;
    j["frame"] = v.plan.frame->name();
    j["target"] = v.plan.target;
    j["cpu_features"] = features_json(v.compiled.cpu_features);
    if (const char *level = gen::psabi_level_of(gen::parsed_target(v.plan.target))) {
        j["psabi_level"] = level;
    }
    j["api"] = contract::apis[v.compiled.api].name;
    if (v.compiled.capability_exact) {
        j["capability_exact"] = true;
    }
    contract::for_each_requirement(v.compiled, [&](const char *name, auto value) {
        if (value > 0 && !j.contains(name)) {
            j[name] = value;
        }
    });
    j["min_seq_len_q"] = v.plan.min_seq_len_q;
    j["max_seq_len_q"] = v.plan.max_seq_len_q > 0 ? OrderedJson(v.plan.max_seq_len_q) : OrderedJson("unlimited");
    if (v.plan.min_group_size > 0 || v.plan.max_group_size > 0) {
        j["min_group_size"] = v.plan.min_group_size;
        j["max_group_size"] = v.plan.max_group_size > 0 ? OrderedJson(v.plan.max_group_size) : OrderedJson("unlimited");
    }
    j["tiling"] = v.plan.tiling.to_string();
    if (!v.plan.record.empty()) {
        j["tuning_record"] = readable(v.plan.record);
    }
    j["scratch_bytes_per_thread"] = v.compiled.scratch.per_thread;
    if (v.compiled.scratch.thread_keys.bytes > 0) {
        j["scratch_thread_keys"] = described_term(v.compiled.scratch.thread_keys);
        if (v.compiled.scratch.thread_keys.query_bytes > 0) {
            j["scratch_thread_keys"]["query_bytes"] = v.compiled.scratch.thread_keys.query_bytes;
        }
    }
    j["scratch_terms"] = scratch_json(v.compiled.scratch);
    return j;
}

} // namespace

std::string readable(const std::string &text) {
    gen::TextWriter all;
    for (size_t at = 0; at < text.size();) {
        const auto head = static_cast<unsigned char>(text[at]);
        const size_t length = head < 0x80 ? 1 : head >= 0xF0 ? 4 : head >= 0xE0 ? 3 : 2;
        const std::string one = text.substr(at, length);
        if (OrderedJson::accept('"' + one + '"') || head == '"' || head == '\\' || head < 0x20) {
            all << one;
            at += length;
        } else {
            all << "\\x"
                << "0123456789abcdef"[head / 16] << "0123456789abcdef"[head % 16];
            at++;
        }
    }
    return all.str();
}

std::string manifest_text(const Library &library) {
    const polyhead_problem &p = library.problem;
    const Counts c = counts_of(p);
    OrderedJson j;
    j["name"] = library.name;
    j["problem"] = problem_json(library);
    j["generate"] = readable("polyhead generate " + library.name + " " + contract::flags_of(p));
    if (!library.tuned.empty()) {
        j["tuned"] = readable(library.tuned);
    }
    j["parameters"] = c.parameters;
    j["weights_bytes"] = contract::weight_layout(p).bytes; // packed, see docs/internals/design.md
    j["weight_layout"] = contract::weight_layout_id(p);
    j["flops"] = {{"formula", c.flops}};
    j["bytes_moved"] = {{"formula", c.bytes}};
    if (p.keep_heads != 0) {
        j["kept_bytes"] = {{"formula", kept_bytes(p)}};
    }
    if (c.fixed && p.keep_heads != 0) {
        j["kept_bytes"]["batch_1"] = kept_bytes_number(p);
    }
    if (c.fixed) {
        j["flops"]["batch_1"] = c.flops_number;
        j["bytes_moved"]["batch_1"] = c.bytes_number;
    }
    j["variants"] = OrderedJson::array();
    for (const LibraryVariant &variant : library.variants) {
        j["variants"].push_back(variant_json(variant));
    }
    j["library"] = library.name + ".a";
    j["library_bytes"] = library.library_bytes;
    if (!library.runtime_archives.empty()) {
        j["runtime_archives"] = library.runtime_archives;
    }
    j["versions"] = {{"polyhead", POLYHEAD_VERSION}, {"abi", POLYHEAD_ABI_VERSION}, {"halide", POLYHEAD_HALIDE_VERSION}};
    return j.dump(2) + "\n";
}

} // namespace polyhead::tools
