// Compilation in its own process: if it crashes, hangs or takes too much memory, the result is one sentence.
#pragma once

#include <string>

#include "compile_job.h"
#include "limits.h"

namespace polyhead::tools {

// The program that serves jobs: polyhead-generate. The tools set it once, at their start.
void set_compiler_program(const std::string &path);
const std::string &compiler_program();

// gen::compile_variant() by another process within the limits.
gen::CompiledVariant compile_apart(const CompileJob &job, const Limits &limits, std::string *error);
// A file that Halide makes, likewise. Returns one sentence or nothing.
std::string make_apart(const FileJob &job, const Limits &limits);

// Asks for the functions of a source, which texts of this process may name then; *text does. Returns one sentence or nothing.
std::string describe_source_apart(const ExpressionSource &source, const Limits &limits, std::string *text);

// Ends the compiler of a process that has one at a time; for the end of one that cannot unwind, and for signal handlers.
void end_compiler() noexcept;

} // namespace polyhead::tools
