// What kernels can compute: one row for each operation. tensors.h says what each of them takes.
#ifndef POLYHEAD_CONTRACT_OPERATIONS_H
#define POLYHEAD_CONTRACT_OPERATIONS_H

#include <cstdint>
#include <string_view>

#include <polyhead/c_problem.h>

#include "rows.h"

namespace polyhead::contract {

struct Operation {
    const char *name;
    int32_t id;       // polyhead_op
    bool attends;     // softmax over keys: masks, modifiers, and the numbers of attention
    bool has_weights; // packed weights
    bool by_heads;    // query, key, value and out have a dimension of heads
    bool backward;    // gradients: what the forward call wrote is an input
    const char *what; // "the kernel ...": why it takes no tensor of another operation
};

// In the order of polyhead_op.
inline constexpr Operation operations[] = {
    {"sdpa", POLYHEAD_SDPA, true, false, true, false, "computes sdpa"},
    {"mha", POLYHEAD_MHA, true, true, false, false, "does not compute sdpa"},
    {"linear", POLYHEAD_LINEAR, false, true, false, false, "is a linear layer"},
    {"sdpa_backward", POLYHEAD_SDPA_BACKWARD, true, false, true, true, "computes gradients of sdpa"},
    {"linear_backward", POLYHEAD_LINEAR_BACKWARD, false, false, false, true, "computes gradients of a linear layer"},
    {"mha_backward", POLYHEAD_MHA_BACKWARD, true, false, false, true, "computes gradients of a layer"},
};

// "sdpa", or "unknown".
constexpr const char *op_name(int32_t id) noexcept {
    return fact_of(operations, id, &Operation::name, "unknown");
}
// "computes sdpa": what a kernel of the operation does, in sentences.
constexpr const char *what_op(int32_t id) noexcept {
    return fact_of(operations, id, &Operation::what, "is of an unknown operation");
}

// Whose results are the gradients of this operation's tensors: that of its name with _backward behind it, or -1.
inline int32_t backward_of(int32_t id) noexcept {
    const std::string_view name = op_name(id), end = "_backward";
    for (const Operation &row : operations) {
        const std::string_view other = row.name;
        if (other.size() == name.size() + end.size() && other.substr(0, name.size()) == name && other.substr(name.size()) == end) {
            return row.id;
        }
    }
    return -1;
}

// A set of operations, as bits.
constexpr int op_bit(int32_t id) noexcept {
    return id >= 0 && id < 31 ? 1 << id : 0;
}
namespace ops {
constexpr int sdpa = op_bit(POLYHEAD_SDPA), mha = op_bit(POLYHEAD_MHA), linear = op_bit(POLYHEAD_LINEAR),
              sdpa_backward = op_bit(POLYHEAD_SDPA_BACKWARD), linear_backward = op_bit(POLYHEAD_LINEAR_BACKWARD),
              mha_backward = op_bit(POLYHEAD_MHA_BACKWARD);

constexpr int where(bool Operation::*fact) noexcept {
    int bits = 0;
    for (const Operation &row : operations) {
        bits |= row.*fact ? op_bit(row.id) : 0;
    }
    return bits;
}
constexpr int attention = where(&Operation::attends), layers = where(&Operation::has_weights), bare = where(&Operation::by_heads),
              backward = where(&Operation::backward), forward = attention & ~backward, // those that write out
    attention_backward = attention & backward,
              one_layer = linear | linear_backward,     // rows and one matrix
    attention_layers = attention & ~bare,               // projections, attention and the output projection
    projects = layers | linear_backward | mha_backward, // rows are multiplied by a matrix, packed or not
    any = (1 << sizeof(operations) / sizeof(Operation)) - 1;
} // namespace ops

constexpr bool attends(const polyhead_problem &p) noexcept {
    return (ops::attention & op_bit(p.op)) != 0;
}
constexpr bool has_weights(const polyhead_problem &p) noexcept {
    return (ops::layers & op_bit(p.op)) != 0;
}
constexpr bool by_heads(const polyhead_problem &p) noexcept {
    return (ops::bare & op_bit(p.op)) != 0;
}
constexpr bool is_backward(const polyhead_problem &p) noexcept {
    return (ops::backward & op_bit(p.op)) != 0;
}
// Multiplies rows by a matrix: numbers and knobs of linear layers.
constexpr bool projects(const polyhead_problem &p) noexcept {
    return (ops::projects & op_bit(p.op)) != 0;
}
// Attention itself, and not its gradients.
constexpr bool computes_out(const polyhead_problem &p) noexcept {
    return (ops::forward & op_bit(p.op)) != 0;
}
// Projections, attention and the output projection, or their gradients.
constexpr bool is_attention_layer(const polyhead_problem &p) noexcept {
    return (ops::attention_layers & op_bit(p.op)) != 0;
}

} // namespace polyhead::contract
#endif
