// Halide's warnings as errors: a warning means that code would not do what was intended, so it ends a compilation as an error does.
#pragma once

#include <string>

namespace polyhead::gen {

// While one exists, warnings that Halide gives on this thread are kept, not printed. Errors are thrown as ever.
class CompilerWarnings {
public:
    CompilerWarnings();
    ~CompilerWarnings();
    CompilerWarnings(const CompilerWarnings &) = delete;
    CompilerWarnings &operator=(const CompilerWarnings &) = delete;
    // The first one in one sentence, or empty.
    const std::string &sentence() const { return sentence_; }

private:
    friend class Listener;
    std::string sentence_;
    CompilerWarnings *const outer_;
};

} // namespace polyhead::gen
