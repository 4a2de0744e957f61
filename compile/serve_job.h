// The other end of tools/compile_process.h: the process that compiles.
#pragma once

#include <string>

namespace polyhead::tools {

// Reads the job from standard input, works, writes the answer to standard output. Returns the exit status.
int serve_compile_job();
// Answers with this sentence where a job is served; for the end of a process that cannot unwind.
void answer_failure(const std::string &sentence) noexcept;

} // namespace polyhead::tools
