// The symbols of ELF objects, as a program that links them sees them. Objects of other formats (COFF, Mach-O) stay as they are.
#pragma once

#include <string>

namespace polyhead::tools {

// Gives Halide's names in an object file a prefix of ours, so that they do not meet those of other Halide code in a program, and with
// `hide` takes all symbols of the object out of the library that it will be in. The code is not touched. Returns one sentence or nothing.
std::string claim_symbols(const std::string &object, bool hide);

// Every symbol that the objects of an archive define is hidden in the library that they will be in.
std::string hide_symbols(const std::string &archive);

// The same archive at another path, with the functions that kernels call visible again: for a program that loads kernels at run time.
std::string show_symbols(const std::string &archive, const std::string &path);

} // namespace polyhead::tools
