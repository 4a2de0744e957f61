// User expressions: the content of a text after it was read and checked.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "expression.h"

namespace polyhead::gen::language {

enum class Type { boolean, integer, real };

enum class Op {
    number,   // integer or real
    truth,    // boolean, in `integer`
    variable, // `index` is a Variable
    element,  // of tensor `index`; args are the indices, outermost first
    to_real,
    negate,
    add,
    subtract,
    multiply,
    divide, // integers: rounds down
    modulo, // with the sign of the divisor
    minimum,
    maximum,
    absolute,
    floor, // an integer
    exp,
    log,
    tanh,
    sqrt,
    uniform, // of seed, b, h, q, kv
    select,
    less,
    less_equal,
    equal,
    conjunction,
    disjunction,
    negation, // not
    source,   // what a function of the user's C++ gives
};

enum class Variable { score, b, h, q, kv, position, seq_len_q, seq_len_kv, kv_length };

struct Node;
using NodePtr = std::shared_ptr<const Node>;

// A function of the user's C++. Who only reads texts knows what it reads; the compiler has derived from it what calls it.
struct SourceFunction {
    explicit SourceFunction(uint32_t facts_read) : facts(facts_read) {}
    virtual ~SourceFunction() = default;
    uint32_t facts; // bits POLYHEAD_EXPRESSION_
};

struct Node {
    Op op;
    Type type;
    std::vector<NodePtr> args;
    int32_t integer = 0;
    double real = 0;
    size_t index = 0;
    int size = 1; // operations when nothing is shared
    std::shared_ptr<const SourceFunction> source = nullptr;
};

struct Program {
    std::vector<ExpressionTensor> tensors;
    NodePtr score, mask; // null: not in the text
};

NodePtr make_node(Op op, Type type, std::vector<NodePtr> args, size_t index = 0);
NodePtr make_integer(int32_t value);
NodePtr make_real(double value);

// Returns "" or "LINE:COLUMN: sentence".
std::string read_program(const std::string &text, Program *program);

// What a node reads, as bits POLYHEAD_EXPRESSION_. b as the index of a dimension that is declared as b is not read: that dimension is
// divided as the batch is.
uint32_t facts_of(const Node &node, const std::vector<ExpressionTensor> &tensors);

} // namespace polyhead::gen::language
