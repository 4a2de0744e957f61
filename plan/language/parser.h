// User expressions: reads operators, calls and names into nodes.
#pragma once

#include <map>

#include "tokens.h"
#include "types.h"

namespace polyhead::gen::language {

// The first complaint ends the reading: from then on every function returns null.
class ExpressionParser {
public:
    ExpressionParser(std::vector<Token> tokens, Complaint *complaint) : tokens_(std::move(tokens)), complaint_(complaint) {}

    // Names that statements before have declared.
    std::vector<ExpressionTensor> tensors;
    std::map<std::string, NodePtr> lets;

    NodePtr expression() { return binary(0); }

    const Token &peek() const { return tokens_[at_]; }
    Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
    bool is(const std::string &text) const { return (peek().kind == Token::word || peek().kind == Token::symbol) && peek().text == text; }
    // Takes the token if it is this one; complains otherwise.
    bool expect(const std::string &text);
    // Takes a name that has no meaning yet; complains otherwise.
    Token take_new_name();
    NodePtr fail(const Place &place, const std::string &sentence);
    // "found X, expected ..." about the next token.
    NodePtr fail_expecting(const std::string &expected);
    bool failed() const { return !complaint_->sentence.empty(); }

private:
    std::vector<Token> tokens_;
    Complaint *complaint_;
    size_t at_ = 0;
    int depth_ = 0;

    NodePtr binary(size_t level);
    NodePtr unary(const std::string &op, size_t level);
    NodePtr primary();
    NodePtr number();
    NodePtr name();
    NodePtr call(const Token &name, const Function &function);
    NodePtr element(const Token &name, const ExpressionTensor &tensor);
    std::vector<NodePtr> arguments(const char *close, std::vector<Place> *places);
    NodePtr accept(const Place &place, const NodePtr &node, const Typing &typing, const std::vector<Place> &arguments = {});
    bool deeper(int by);
};

} // namespace polyhead::gen::language
