// User expressions: the text cut into tokens.
#include "tokens.h"

#include <cstring>

#include "../text.h"

namespace polyhead::gen::language {
namespace {

bool begins_word(char c) {
    return is_letter(c) || c == '_';
}

class Tokenizer {
public:
    Tokenizer(const std::string &text, Complaint *complaint) : text_(text), complaint_(complaint) {}

    std::vector<Token> read() {
        while (complaint_->sentence.empty() && at_ < text_.size()) {
            read_one();
        }
        tokens_.push_back({Token::end, "the end of the text", place_});
        return std::move(tokens_);
    }

private:
    const std::string &text_;
    Complaint *complaint_;
    std::vector<Token> tokens_;
    size_t at_ = 0;
    Place place_;
    int depth_ = 0;

    char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

    void step() {
        const unsigned char c = static_cast<unsigned char>(text_[at_++]);
        if (c == '\n') {
            place_ = {place_.line + 1, 1};
        } else if ((c & 0xC0) != 0x80) { // not the rest of a UTF-8 character
            place_.column++;
        }
    }

    // The next `length` bytes as a token.
    void take(Token::Kind kind, size_t length) {
        tokens_.push_back({kind, text_.substr(at_, length), place_});
        for (size_t i = 0; i < length; i++) {
            step();
        }
    }

    void separate(const char *name) {
        tokens_.push_back({Token::separator, name, place_});
        step();
    }

    void read_one() {
        const char c = peek();
        if (c == '#') {
            while (at_ < text_.size() && peek() != '\n') {
                step();
            }
        } else if (c == ';') {
            separate(";");
        } else if (c == '\n' && depth_ == 0) {
            separate("the end of the line");
        } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
            step();
        } else if (begins_word(c)) {
            take(Token::word, word_length(0));
        } else if (is_digit(c) || (c == '.' && is_digit(peek(1)))) {
            take(Token::number, number_length());
        } else {
            read_symbol();
        }
    }

    size_t word_length(size_t from) const {
        size_t length = from;
        while (begins_word(peek(length)) || is_digit(peek(length))) {
            length++;
        }
        return length;
    }

    // Digits, point, exponent, and letters that do not belong there: what reads the number refuses them.
    size_t number_length() const {
        size_t length = 0;
        while (is_digit(peek(length)) || begins_word(peek(length)) || peek(length) == '.' ||
               ((peek(length) == '+' || peek(length) == '-') && (peek(length - 1) == 'e' || peek(length - 1) == 'E'))) {
            length++;
        }
        return length;
    }

    void read_symbol() {
        for (const char *two : {"<=", ">=", "==", "!="}) {
            if (text_.compare(at_, 2, two) == 0) {
                take(Token::symbol, 2);
                return;
            }
        }
        const char c = peek();
        if (c == '\0' || std::strchr("+-*/%<>=()[],:", c) == nullptr) {
            refuse_character();
            return;
        }
        depth_ += c == '(' || c == '[' ? 1 : (c == ')' || c == ']') && depth_ > 0 ? -1 : 0;
        take(Token::symbol, 1);
    }

    void refuse_character() {
        size_t length = 1;
        while ((peek(length) & 0xC0) == 0x80) {
            length++;
        }
        const char c = peek();
        const bool control = static_cast<unsigned char>(c) <= ' ';
        const std::string found = control ? "control character " + std::to_string(int(c)) : "'" + text_.substr(at_, length) + "'";
        const char *instead = c == '&'   ? "; it is written `and`"
                              : c == '|' ? "; it is written `or`"
                              : c == '!' ? "; it is written `not`"
                                         : "";
        *complaint_ = {"found " + found + ", which the language does not have" + instead, place_};
    }
};

} // namespace

std::vector<Token> tokens_of(const std::string &text, Complaint *complaint) {
    return Tokenizer(text, complaint).read();
}

} // namespace polyhead::gen::language
