// User expressions written in C++: opened, tried once, and called where a text names them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "../../plan/language/sources.h"
#include "values.h"

namespace polyhead::gen {

// What a source says of itself.
struct LoadedSource {
    std::string name, text;                          // the text that refers to it: its declarations and `source NAME`
    std::optional<uint32_t> score_facts, mask_facts; // of the functions that it defines: bits POLYHEAD_EXPRESSION_
};

// Opens the shared object that was made of a C++ file (its path and content) with <polyhead/expression_source.h>; its name follows from the
// file's name and content. Texts of this process may name it then. Returns one sentence on failure. The object stays open.
std::string load_expression_source(const std::string &file, const std::string &content, const std::string &library, LoadedSource *loaded);

// What a function of a source gives in this scope.
Halide::Expr value_of(const language::SourceFunction &function, const ExpressionScope &scope);

} // namespace polyhead::gen
