// What attention reads: tensors of a call, or Funcs that were made of them.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "../../plan/problem.h"
#include "../key_source.h"
#include "../storage.h"
#include <Halide.h>

namespace polyhead::gen {

// What attention reads; it may come from tensors or from Funcs. Positions are in range: frames clamp. What a problem does not have
// stays empty.
struct AttentionInputs {
    using At = Halide::Expr;
    Storage query_storage;
    std::function<At(At d, At q, At h, At b)> stored_query; // an element as it is stored
    KeySource keys;                                         // key and value
    Storage additive_storage;                               // of an additive mask and the score bias
    std::function<At(At d, At q, At h, At b)> gate;         // of the result, before the sigmoid, as a float
    // Of a backward call, as floats: what the forward call wrote, and the gradient of its result, as it was given and before the gates.
    std::function<At(At d, At q, At h, At b)> out, given_grad_out, grad_out;
    std::function<At(At q, At h, At b)> lse;
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

} // namespace polyhead::gen
