// Receives the warnings of Halide's compiler.
#include "compiler_warnings.h"

#include <algorithm>

#include <Halide.h>

namespace polyhead::gen {
namespace {

thread_local CompilerWarnings *listening = nullptr;

// Our schedules allow races only within one thread: unrolled and vectorized stores to different addresses. ThreadSanitizer checks threads.
bool expected(const std::string &text) {
    return text.find("allow_race_conditions()") != std::string::npos && text.find("ThreadSanitizer") != std::string::npos;
}

} // namespace

// Halide has one reporter per process. It gets errors, too; these are thrown as exceptions.
class Listener : public Halide::CompileTimeErrorReporter {
public:
    void warning(const char *text) override {
        if (!listening || !listening->sentence_.empty() || expected(text)) {
            return;
        }
        std::string line = text;
        std::replace(line.begin(), line.end(), '\n', ' ');
        line.erase(line.find_last_not_of(' ') + 1);
        listening->sentence_ = "the compiler warns, which is an error here: " + line;
    }
    [[noreturn]] void error(const char *text) override { throw Halide::CompileError(text); }
};

CompilerWarnings::CompilerWarnings() : outer_(listening) {
    static Listener *const listener = [] {
        auto *const made = new Listener; // never destroyed: Halide may speak while the process ends
        Halide::set_custom_compile_time_error_reporter(made);
        return made;
    }();
    static_cast<void>(listener);
    listening = this;
}

CompilerWarnings::~CompilerWarnings() {
    listening = outer_;
}

} // namespace polyhead::gen
