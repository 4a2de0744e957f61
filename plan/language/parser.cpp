// User expressions: operators, calls and names, by recursive descent.
#include "parser.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace polyhead::gen::language {
namespace {

constexpr int most_depth = 200; // of brackets and unary operators

// Binary operators, the lowest precedence first. A unary operator has a lower precedence than the level after it.
const std::vector<std::string> levels[] = {{"or"}, {"and"}, {"<", "<=", ">", ">=", "==", "!="}, {"+", "-"}, {"*", "/", "%"}};
constexpr size_t comparisons = 2, tightest = 5;

struct VariableName {
    const char *name;
    Variable variable;
};
constexpr VariableName variables[] = {{"score", Variable::score},
                                      {"b", Variable::b},
                                      {"h", Variable::h},
                                      {"q", Variable::q},
                                      {"kv", Variable::kv},
                                      {"p", Variable::position},
                                      {"seq_len_q", Variable::seq_len_q},
                                      {"seq_len_kv", Variable::seq_len_kv},
                                      {"kv_length", Variable::kv_length}};
struct Word {
    const char *name;
};
constexpr Word words[] = {{"and"}, {"or"}, {"not"}, {"true"}, {"false"}, {"tensor"}, {"let"}, {"mask"}, {"source"}, {"grad"}};

template <class List> auto find_name(const List &list, const std::string &name) {
    const auto found = std::find_if(std::begin(list), std::end(list), [&](const auto &entry) { return entry.name == name; });
    return found == std::end(list) ? nullptr : &*found;
}

NodePtr make_leaf(Op op, Type type, size_t index, bool truth = false) {
    auto node = std::make_shared<Node>(Node{op, type, {}});
    node->index = index;
    node->integer = truth;
    return node;
}

} // namespace

NodePtr ExpressionParser::fail(const Place &place, const std::string &sentence) {
    if (!failed()) {
        *complaint_ = {sentence, place};
    }
    return nullptr;
}

NodePtr ExpressionParser::fail_expecting(const std::string &expected) {
    const Token &found = peek();
    const bool literal = found.kind != Token::end && (found.kind != Token::separator || found.text == ";");
    return fail(found.place, "found " + (literal ? "'" + found.text + "'" : found.text) + ", expected " + expected);
}

bool ExpressionParser::expect(const std::string &text) {
    if (!is(text)) {
        fail_expecting("'" + text + "'");
        return false;
    }
    take();
    return true;
}

Token ExpressionParser::take_new_name() {
    const std::string &name = peek().text;
    if (peek().kind != Token::word) {
        fail_expecting("a name");
    } else if (find_name(words, name) || find_name(functions, name) || find_name(variables, name)) {
        fail(peek().place, "'" + name + "' is a reserved word, expected another name");
    } else if (find_name(tensors, name) || lets.count(name) > 0) {
        fail(peek().place, "'" + name + "' is declared already, expected a new name");
    }
    return take();
}

NodePtr ExpressionParser::accept(const Place &place, const NodePtr &node, const Typing &typing, const std::vector<Place> &arguments) {
    if (!node) {
        return fail(typing.culprit < arguments.size() ? arguments[typing.culprit] : place, typing.complaint);
    }
    return node->size <= most_operations
               ? node
               : fail(place, "more than " + std::to_string(most_operations) + " operations, counting those of a let wherever it is used");
}

bool ExpressionParser::deeper(int by) {
    depth_ += by;
    if (depth_ > most_depth) {
        fail(peek().place, "brackets and signs are nested more than " + std::to_string(most_depth) + " deep");
    }
    return !failed();
}

NodePtr ExpressionParser::binary(size_t level) {
    if (level == comparisons && is("not")) {
        return unary("not", level);
    }
    if (level == tightest) {
        return is("-") ? unary("-", level) : primary();
    }
    NodePtr left = binary(level + 1);
    while (left && std::any_of(levels[level].begin(), levels[level].end(), [&](const std::string &op) { return is(op); })) {
        const Token op = take();
        const NodePtr right = binary(level + 1);
        Typing typing;
        left = right ? accept(op.place, typing.binary(op.text, left, right), typing) : nullptr;
    }
    return left && level == comparisons && is("=") ? fail_expecting("'==' to compare") : left;
}

NodePtr ExpressionParser::unary(const std::string &op, size_t level) {
    const Place place = take().place;
    const NodePtr operand = deeper(1) ? binary(level) : nullptr;
    Typing typing;
    return operand && deeper(-1) ? accept(place, typing.unary(op, operand), typing) : nullptr;
}

NodePtr ExpressionParser::primary() {
    if (peek().kind == Token::number) {
        return number();
    }
    if (peek().kind == Token::word) {
        return name();
    }
    if (!is("(")) {
        const bool line = peek().kind == Token::separator && peek().text != ";";
        return fail_expecting(std::string("a number, a name or '('") + (line ? "; a line continues only inside brackets" : ""));
    }
    take();
    const NodePtr inside = deeper(1) ? expression() : nullptr;
    return inside && deeper(-1) && expect(")") ? inside : nullptr;
}

NodePtr ExpressionParser::number() {
    const Token token = take();
    const char *first = token.text.data(), *last = first + token.text.size();
    if (token.text.find_first_not_of("0123456789") == std::string::npos) {
        int32_t value = 0;
        return std::from_chars(first, last, value).ec == std::errc()
                   ? make_integer(value)
                   : fail(token.place, token.text + " is beyond 32 bits, expected at most 2147483647, or " + token.text + ".0 for a float");
    }
    double value = 0;
    const auto [end, error] = std::from_chars(first, last, value);
    if (end != last || error == std::errc::invalid_argument) {
        return fail(token.place, "'" + token.text + "' is not a number");
    }
    if (error != std::errc() || std::isinf(static_cast<float>(value))) {
        return fail(token.place, token.text + " is beyond the range of f32");
    }
    return make_real(value);
}

NodePtr ExpressionParser::name() {
    const std::string &text = peek().text;
    if (text == "true" || text == "false") {
        return make_leaf(Op::truth, Type::boolean, 0, take().text == "true");
    }
    if (find_name(words, text)) {
        return fail_expecting("a number, a name or '('");
    }
    const Token token = take();
    if (const VariableName *found = find_name(variables, token.text)) {
        return make_leaf(Op::variable, found->variable == Variable::score ? Type::real : Type::integer,
                         static_cast<size_t>(found->variable));
    }
    if (const Function *function = find_name(functions, token.text)) {
        return call(token, *function);
    }
    if (const ExpressionTensor *tensor = find_name(tensors, token.text)) {
        return element(token, *tensor);
    }
    if (const auto let = lets.find(token.text); let != lets.end()) {
        return let->second;
    }
    std::string known;
    for (const VariableName &variable : variables) {
        known += std::string(variable.name) + ", ";
    }
    return fail(token.place, "unknown name '" + token.text + "'; " +
                                 (token.text == "inf" ? "mask = ... says which keys take part"
                                                      : "known are " + known + "functions, and what is declared above"));
}

std::vector<NodePtr> ExpressionParser::arguments(const char *close, std::vector<Place> *places) {
    std::vector<NodePtr> list;
    take();
    deeper(1);
    while (!failed() && (!is(close) || !list.empty())) {
        places->push_back(peek().place);
        list.push_back(expression());
        if (failed() || is(close)) {
            break;
        }
        if (!is(",")) {
            fail_expecting(std::string("',' or '") + close + "'");
        }
        take();
    }
    deeper(-1);
    take();
    return list;
}

NodePtr ExpressionParser::call(const Token &name, const Function &function) {
    if (!is("(")) {
        return fail_expecting("'(' after " + name.text);
    }
    std::vector<Place> places;
    const std::vector<NodePtr> args = arguments(")", &places);
    Typing typing;
    return failed() ? nullptr : accept(name.place, typing.call(function, args), typing, places);
}

NodePtr ExpressionParser::element(const Token &name, const ExpressionTensor &tensor) {
    std::vector<Place> places;
    const std::vector<NodePtr> indices = is("[") ? arguments("]", &places) : std::vector<NodePtr>();
    Typing typing;
    return failed() ? nullptr
                    : accept(name.place, typing.element(tensor, static_cast<size_t>(&tensor - tensors.data()), indices), typing, places);
}

} // namespace polyhead::gen::language
