// User expressions written in C++: a text names a source that this process has loaded as `source NAME`.
#pragma once

#include <string>

#include "program.h"

namespace polyhead::gen {

// Opens the shared object that was made of a C++ file (its path and content) with <polyhead/expression_source.h>. *text becomes the
// expression that refers to it in this process: its declarations and `source NAME`, where NAME follows from the file's name and content.
// Returns one sentence on failure. The object stays open.
std::string load_expression_source(const std::string &file, const std::string &content, const std::string &library, std::string *text);

namespace language {

// Adds the nodes of a loaded source, which reads the tensors that the program has; false when none of this name is loaded.
bool add_source(const std::string &name, Program *program);

} // namespace language
} // namespace polyhead::gen
