// What a program was built from, as its linker wrote it down.
#pragma once

#include <string>

namespace polyhead::load {

// The build ids of the compiler and of the Halide that it loads: hashes of their content. Empty where one of them is not known.
std::string compiler_id(const std::string &program);

// Whether there is such a program, but not the Halide that it needs in one of the folders where it looks for it first.
bool lacks_halide(const std::string &program);

} // namespace polyhead::load
