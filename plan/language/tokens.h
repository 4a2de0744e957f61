// User expressions: the words of the text and their places.
#pragma once

#include <string>
#include <vector>

namespace polyhead::gen::language {

struct Place {
    int line = 1, column = 1; // in characters, from 1
};

struct Token {
    enum Kind { end, separator, number, word, symbol } kind = end;
    std::string text; // of a separator: what a sentence calls it
    Place place;
};

// A sentence about a place of the text.
struct Complaint {
    std::string sentence; // empty: all is well
    Place place;
};

// Ends with a token `end`. Lines end at brackets' depth 0 only; comments are left out.
std::vector<Token> tokens_of(const std::string &text, Complaint *complaint);

} // namespace polyhead::gen::language
