// Receives the warnings of Halide's compiler.
#include "compiler_warnings.h"

#include <algorithm>

#include <Halide.h>

namespace polyhead::gen {
namespace {

thread_local CompilerWarnings *listening = nullptr;

bool expected(const std::string &text) {
    const auto has = [&](const char *words) { return text.find(words) != std::string::npos; };
    // Our schedules allow races only within one thread: unrolled and vectorized stores to different addresses. ThreadSanitizer checks
    // threads.
    const bool race = has("allow_race_conditions()") && has("ThreadSanitizer");
    // WGSL has no bytes, so a bool mask is read by atomic loads of words: slow, and right.
    const bool bytes_in_wgsl = has("small integer types") && has("emulated using atomics in the WebGPU backend");
    return race || bytes_in_wgsl;
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
