// User expressions: types. bool is only allowed in logic; int becomes float when combined with float.
#include "types.h"

#include <algorithm>
#include <map>

#include <polyhead/c_api.h>

namespace polyhead::gen::language {
namespace {

const std::map<std::string, Op> arithmetic = {{"+", Op::add},    {"-", Op::subtract},  {"*", Op::multiply}, {"/", Op::divide},
                                              {"%", Op::modulo}, {"min", Op::minimum}, {"max", Op::maximum}};
const std::map<std::string, Op> real_functions = {{"exp", Op::exp}, {"log", Op::log}, {"tanh", Op::tanh}, {"sqrt", Op::sqrt}};

constexpr int operations_of_uniform = 100; // generators/random_words.cpp

// How often the formula of an operation contains each of its arguments (values.cpp): with an integer divisor that may be negative both
// are repeated.
int copies_of_argument(const Node &node) {
    const bool rounds = node.type == Type::integer && (node.op == Op::divide || node.op == Op::modulo);
    if (!rounds || (node.args[1]->op == Op::number && node.args[1]->integer > 0)) {
        return 1;
    }
    return node.op == Op::divide ? 2 : 4;
}

} // namespace

const char *type_name(Type type) {
    return type == Type::boolean ? "bool" : type == Type::integer ? "int" : "float";
}

Type element_type(const ExpressionTensor &tensor) {
    return tensor.dtype == POLYHEAD_F32 ? Type::real : tensor.dtype == POLYHEAD_I32 ? Type::integer : Type::boolean;
}

NodePtr make_node(Op op, Type type, std::vector<NodePtr> args, size_t index) {
    auto node = std::make_shared<Node>(Node{op, type, std::move(args)});
    node->index = index;
    node->size = op == Op::uniform ? operations_of_uniform : 1;
    for (const NodePtr &arg : node->args) {
        const int64_t size = node->size + int64_t(arg->size) * copies_of_argument(*node);
        node->size = static_cast<int>(std::min<int64_t>(size, most_operations + 1));
    }
    return node;
}

NodePtr make_integer(int32_t value) {
    auto node = std::make_shared<Node>(Node{Op::number, Type::integer, {}});
    node->integer = value;
    return node;
}

NodePtr make_real(double value) {
    auto node = std::make_shared<Node>(Node{Op::number, Type::real, {}});
    node->real = value;
    return node;
}

NodePtr Typing::refuse(const std::string &sentence, size_t argument) {
    complaint = sentence;
    culprit = argument;
    return nullptr;
}

NodePtr Typing::converted_to_real(const NodePtr &node) {
    if (node->type == Type::real) {
        return node;
    }
    return node->op == Op::number ? make_real(node->integer) : make_node(Op::to_real, Type::real, {node});
}

Type Typing::promote(NodePtr *a, NodePtr *b) {
    if ((*a)->type == Type::integer && (*b)->type == Type::integer) {
        return Type::integer;
    }
    *a = converted_to_real(*a);
    *b = converted_to_real(*b);
    return Type::real;
}

NodePtr Typing::binary(const std::string &op, NodePtr a, NodePtr b) {
    const bool has_bool = a->type == Type::boolean || b->type == Type::boolean;
    if (op == "and" || op == "or") {
        if (a->type != Type::boolean || b->type != Type::boolean) {
            return refuse("'" + op + "' joins bools, found " + type_name(a->type != Type::boolean ? a->type : b->type));
        }
        return make_node(op == "and" ? Op::conjunction : Op::disjunction, Type::boolean, {a, b});
    }
    if (has_bool) {
        return refuse("'" + op + "' takes numbers, found bool");
    }
    const Type type = promote(&a, &b);
    if (const auto found = arithmetic.find(op); found != arithmetic.end()) {
        return make_node(found->second, type, {a, b});
    }
    if (op[0] == '>') {
        std::swap(a, b);
    }
    const NodePtr node = make_node(op == "==" || op == "!="   ? Op::equal
                                   : op == "<=" || op == ">=" ? Op::less_equal
                                                              : Op::less,
                                   Type::boolean, {a, b});
    return op == "!=" ? make_node(Op::negation, Type::boolean, {node}) : node;
}

NodePtr Typing::unary(const std::string &op, const NodePtr &operand) {
    const bool is_bool = operand->type == Type::boolean;
    if (op == "not") {
        return is_bool ? make_node(Op::negation, Type::boolean, {operand})
                       : refuse(std::string("'not' takes a bool, found ") + type_name(operand->type));
    }
    return is_bool ? refuse("'-' takes a number, found bool") : make_node(Op::negate, operand->type, {operand});
}

NodePtr Typing::select(std::vector<NodePtr> args) {
    if (args[0]->type != Type::boolean) {
        return refuse(std::string("select: argument 1 is ") + type_name(args[0]->type) + ", expected bool", 0);
    }
    if ((args[1]->type == Type::boolean) != (args[2]->type == Type::boolean)) {
        return refuse(std::string("select: chooses between ") + type_name(args[1]->type) + " and " + type_name(args[2]->type) +
                      ", expected two numbers or two bools");
    }
    const Type type = args[1]->type == Type::boolean ? Type::boolean : promote(&args[1], &args[2]);
    return make_node(Op::select, type, std::move(args));
}

bool Typing::require_integers(const std::string &subject, const std::vector<NodePtr> &nodes) {
    for (size_t i = 0; i < nodes.size(); i++) {
        if (nodes[i]->type != Type::integer) {
            refuse(subject + " " + std::to_string(i + 1) + " is " + type_name(nodes[i]->type) + ", expected int" +
                       (nodes[i]->type == Type::real ? "; floor() makes one" : ""),
                   i);
            return false;
        }
    }
    return true;
}

NodePtr Typing::call(const Function &function, const std::vector<NodePtr> &args) {
    const std::string name = function.name;
    if (args.size() < function.least || args.size() > function.most) {
        return refuse(name + ": found " + std::to_string(args.size()) + " arguments, expected " + std::to_string(function.least) +
                      (function.most > function.least ? " or more" : ""));
    }
    if (name == "select") {
        return select(args);
    }
    for (size_t i = 0; i < args.size(); i++) {
        if (args[i]->type == Type::boolean) {
            return refuse(name + ": argument " + std::to_string(i + 1) + " is bool, expected a number", i);
        }
    }
    if (name == "clamp") {
        return binary("min", binary("max", args[0], args[1]), args[2]);
    }
    if (arithmetic.count(name) > 0) {
        NodePtr result = args[0];
        for (size_t i = 1; i < args.size(); i++) {
            result = binary(name, result, args[i]);
        }
        return result;
    }
    if (name == "abs") {
        return make_node(Op::absolute, args[0]->type, args);
    }
    if (name == "floor") {
        return args[0]->type == Type::integer ? args[0] : make_node(Op::floor, Type::integer, args);
    }
    if (name == "uniform") {
        return require_integers(name + ": argument", args) ? make_node(Op::uniform, Type::real, args) : nullptr;
    }
    return make_node(real_functions.at(name), Type::real, {converted_to_real(args[0])});
}

NodePtr Typing::element(const ExpressionTensor &tensor, size_t number, const std::vector<NodePtr> &indices) {
    if (indices.size() != static_cast<size_t>(tensor.rank)) {
        return refuse("'" + tensor.name + "': found " + std::to_string(indices.size()) + " indices, expected " +
                      std::to_string(tensor.rank));
    }
    return require_integers("'" + tensor.name + "': index", indices) ? make_node(Op::element, element_type(tensor), indices, number)
                                                                     : nullptr;
}

} // namespace polyhead::gen::language
