// PTX text as statements: comments removed, one statement per label, directive, instruction or brace.
#ifndef POLYHEAD_INSTRUMENTS_CUDA_DRIVER_STATEMENTS_H
#define POLYHEAD_INSTRUMENTS_CUDA_DRIVER_STATEMENTS_H

#include <cstdint>
#include <string>
#include <vector>

namespace polyhead::cuda_driver {

struct Statement {
    enum Kind { plain, label, open, close } kind = plain; // open and close: the braces of a body or a scope
    std::string text;                                     // single spaces, without the semicolon or colon
    int line = 0;
};

std::vector<Statement> split_statements(const std::string &ptx);

// "a, {b, c}, [d+4]" into its parts; braces and brackets hold together.
std::vector<std::string> split_operands(const std::string &text);
std::vector<std::string> split_at(const std::string &text, char separator);
std::string trimmed(const std::string &text);
bool starts_with(const std::string &text, const char *prefix);

// A whole number as PTX writes it: decimal, 0x, octal, with sign, with U. False if it is not one.
bool parse_integer(const std::string &text, int64_t &value);

} // namespace polyhead::cuda_driver
#endif
