// User expressions: what operators and functions take and give.
#pragma once

#include "program.h"

namespace polyhead::gen::language {

constexpr int most_operations = 2000; // of one program, every let written out where it is used

struct Function {
    const char *name;
    size_t least, most; // arguments
};
inline constexpr Function functions[] = {{"select", 3, 3}, {"min", 2, 100}, {"max", 2, 100},  {"clamp", 3, 3},
                                         {"abs", 1, 1},    {"exp", 1, 1},   {"log", 1, 1},    {"tanh", 1, 1},
                                         {"sqrt", 1, 1},   {"floor", 1, 1}, {"uniform", 5, 5}};

const char *type_name(Type type);
Type element_type(const ExpressionTensor &tensor);

// A node, or null and a sentence in `complaint`; `culprit` is the argument that it is about, if it is about one.
struct Typing {
    std::string complaint;
    size_t culprit = SIZE_MAX;

    NodePtr binary(const std::string &op, NodePtr a, NodePtr b);
    NodePtr unary(const std::string &op, const NodePtr &operand); // `-` and `not`
    NodePtr call(const Function &function, const std::vector<NodePtr> &args);
    NodePtr element(const ExpressionTensor &tensor, size_t number, const std::vector<NodePtr> &indices);
    NodePtr converted_to_real(const NodePtr &node);

private:
    NodePtr refuse(const std::string &sentence, size_t argument = SIZE_MAX);
    // Both as integers, or both as reals.
    Type promote(NodePtr *a, NodePtr *b);
    NodePtr select(std::vector<NodePtr> args);
    // All are ints; refuses the first that is not, as "SUBJECT N is ...".
    bool require_integers(const std::string &subject, const std::vector<NodePtr> &nodes);
};

} // namespace polyhead::gen::language
