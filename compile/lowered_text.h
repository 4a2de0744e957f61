// The lowered code of a kernel as text that does not depend on names, so that the code of two generators can be compared.
#pragma once

#include <string>

#include <Halide.h>

namespace polyhead::gen {

// The statement, and the code for devices in the module that was made of it. Names of Funcs, variables, loops and entries are numbered in
// the order in which they appear, so a Func with another name gives the same text. Functions that are called, types and numbers stay.
// A name still counts where Halide itself sorts by it: Funcs that are independent, operands that may change places, arguments of an entry
// on a device. SPIR-V is written in hexadecimal, with its names.
std::string lowered_text(const Halide::Internal::Stmt &statement, const Halide::Module &module);

} // namespace polyhead::gen
