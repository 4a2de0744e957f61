// The text of a user expression without comments and needless blanks, on one line. Header only: it distinguishes kernels of a set,
// and the generator writes it into headers and command lines.
#ifndef POLYHEAD_CONTRACT_EXPRESSION_TEXT_H
#define POLYHEAD_CONTRACT_EXPRESSION_TEXT_H

#include <string>

namespace polyhead::contract {

// Reads character by character, so that comparing takes no memory. A line that ends outside of brackets becomes `;`.
class ExpressionText {
public:
    explicit ExpressionText(const char *text) noexcept : at_(text != nullptr ? text : "") {}

    // 0 at the end.
    char next() noexcept {
        bool blank = false, separator = false;
        for (bool comment = false; *at_ != 0; ++at_) {
            comment = (comment || *at_ == '#') && *at_ != '\n';
            if (!comment && *at_ != ' ' && *at_ != '\t' && *at_ != '\r' && *at_ != '\n' && *at_ != ';') {
                break;
            }
            blank = true;
            separator = separator || (!comment && (*at_ == ';' || (*at_ == '\n' && depth_ == 0)));
        }
        if (*at_ == 0) {
            return 0;
        }
        if (separator && previous_ != 0) {
            return previous_ = ';';
        }
        if (blank && of_word(previous_) && of_word(*at_)) {
            return previous_ = ' ';
        }
        depth_ += *at_ == '(' || *at_ == '[' ? 1 : (*at_ == ')' || *at_ == ']') && depth_ > 0 ? -1 : 0;
        return previous_ = *at_++;
    }

private:
    const char *at_;
    char previous_ = 0;
    int depth_ = 0;

    static bool of_word(char c) noexcept {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
    }
};

inline std::string one_line(const char *expression) {
    std::string line;
    ExpressionText text(expression);
    for (char c = text.next(); c != 0; c = text.next()) {
        line += c;
    }
    return line;
}

// The same but for comments and blanks; a null pointer is an empty text.
inline bool same_expression(const char *a, const char *b) noexcept {
    ExpressionText text_a(a), text_b(b);
    for (char c = text_a.next();; c = text_a.next()) {
        if (c != text_b.next()) {
            return false;
        }
        if (c == 0) {
            return true;
        }
    }
}

} // namespace polyhead::contract
#endif
