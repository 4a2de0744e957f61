// Splits PTX text into statements and operands.
#include "statements.h"

#include <cstdlib>
#include <cstring>

namespace polyhead::cuda_driver {

namespace {

// Comments become spaces, line breaks stay, so that lines keep their numbers.
std::string without_comments(const std::string &ptx) {
    std::string text = ptx;
    for (size_t at = 0; at + 1 < text.size(); at++) {
        if (text[at] == '"') {
            const size_t end = text.find('"', at + 1);
            at = end == std::string::npos ? text.size() : end;
        } else if (text[at] == '/' && (text[at + 1] == '/' || text[at + 1] == '*')) {
            const bool whole_line = text[at + 1] == '/';
            const size_t found = text.find(whole_line ? "\n" : "*/", at + 2);
            const size_t end = found == std::string::npos ? text.size() : found + (whole_line ? 0 : 2);
            for (; at < end; at++) {
                text[at] = text[at] == '\n' ? '\n' : ' ';
            }
            at--;
        }
    }
    return text;
}

// Directives that end with their line instead of a semicolon.
bool ends_with_line(const std::string &text) {
    for (const char *word :
         {".version", ".target", ".address_size", ".loc", ".file", ".maxntid", ".reqntid", ".minnctapersm", ".maxnreg"}) {
        if (starts_with(text, word)) {
            return true;
        }
    }
    return false;
}

class Splitter {
public:
    explicit Splitter(const std::string &ptx) : text_(without_comments(ptx)) {}

    std::vector<Statement> run() {
        for (char c : text_) {
            if (c == '\n') {
                if (ends_with_line(current_)) {
                    finish(Statement::plain);
                }
                line_++;
            }
            take(c);
        }
        finish(Statement::plain);
        return std::move(statements_);
    }

private:
    void take(char c) {
        if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
            if (!current_.empty() && current_.back() != ' ') {
                current_ += ' ';
            }
            return;
        }
        const bool inside = depth_ > 0;
        if (c == ';' && !inside) {
            finish(Statement::plain);
        } else if (c == ':' && !inside && current_.find(' ') == std::string::npos && current_.find('.') == std::string::npos) {
            finish(Statement::label);
        } else if (c == '{' && !inside && (current_.empty() || opens_body())) {
            finish(Statement::plain);
            add(Statement::open);
        } else if (c == '}' && !inside && current_.empty()) {
            add(Statement::close);
        } else {
            depth_ += (c == '{' || c == '[' || c == '(') - (c == '}' || c == ']' || c == ')');
            if (current_.empty()) {
                start_ = line_;
            }
            current_ += c;
        }
    }

    bool opens_body() const { return current_.find(".entry") != std::string::npos || current_.find(".func") != std::string::npos; }

    void add(Statement::Kind kind) {
        Statement statement;
        statement.kind = kind;
        statement.line = kind == Statement::open || kind == Statement::close ? line_ : start_;
        statement.text = trimmed(current_);
        statements_.push_back(statement);
        current_.clear();
    }

    void finish(Statement::Kind kind) {
        if (!trimmed(current_).empty()) {
            add(kind);
        }
        current_.clear();
    }

    std::string text_, current_;
    std::vector<Statement> statements_;
    int line_ = 1, start_ = 1, depth_ = 0;
};

} // namespace

std::vector<Statement> split_statements(const std::string &ptx) {
    return Splitter(ptx).run();
}

std::string trimmed(const std::string &text) {
    const size_t first = text.find_first_not_of(" \t\r\n");
    return first == std::string::npos ? std::string() : text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

bool starts_with(const std::string &text, const char *prefix) {
    return text.compare(0, std::strlen(prefix), prefix) == 0;
}

std::vector<std::string> split_operands(const std::string &text) {
    std::vector<std::string> parts;
    std::string part;
    int depth = 0;
    for (char c : text) {
        depth += (c == '{' || c == '[' || c == '(') - (c == '}' || c == ']' || c == ')');
        if (c == ',' && depth == 0) {
            parts.push_back(trimmed(part));
            part.clear();
        } else {
            part += c;
        }
    }
    if (!trimmed(part).empty()) {
        parts.push_back(trimmed(part));
    }
    return parts;
}

std::vector<std::string> split_at(const std::string &text, char separator) {
    std::vector<std::string> parts;
    size_t from = 0;
    while (true) {
        const size_t at = text.find(separator, from);
        parts.push_back(trimmed(text.substr(from, at == std::string::npos ? at : at - from)));
        if (at == std::string::npos) {
            return parts;
        }
        from = at + 1;
    }
}

bool parse_integer(const std::string &text, int64_t &value) {
    const bool negative = !text.empty() && text[0] == '-';
    const std::string digits = text.substr(negative || (!text.empty() && text[0] == '+'));
    if (digits.empty() || digits[0] < '0' || digits[0] > '9') {
        return false;
    }
    char *end = nullptr;
    const bool binary = starts_with(digits, "0b");
    const uint64_t magnitude = std::strtoull(digits.c_str() + (binary ? 2 : 0), &end, binary ? 2 : 0);
    if (*end == 'U') {
        end++;
    }
    value = static_cast<int64_t>(negative ? 0 - magnitude : magnitude);
    return *end == 0;
}

} // namespace polyhead::cuda_driver
