// Names that a kernel cannot have.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace polyhead::tools {

// Words between blanks, and what they are in C or C++.
struct ReservedNames {
    std::string_view what, words;
};
std::vector<ReservedNames> reserved_names();

// One sentence when NAME.h would not compile, or would hide another header; otherwise nothing.
std::string refuse_name(const std::string &name);

} // namespace polyhead::tools
