// What a refusal has to look like: one sentence on one line.
#ifndef POLYHEAD_TESTS_FUZZ_SENTENCE_H
#define POLYHEAD_TESTS_FUZZ_SENTENCE_H

#include <cstdio>
#include <cstdlib>
#include <string>

namespace polyhead::fuzz {

// Ends the program, as a crash does: the fuzzer keeps the input.
[[noreturn]] inline void fail(const std::string &what, const std::string &text) {
    std::fprintf(stderr, "%s: %s\n", what.c_str(), text.c_str());
    std::abort();
}

inline void expect_sentence(const std::string &text) {
    if (text.empty() || text.find_first_of(std::string("\n\r\0", 3)) != std::string::npos) {
        fail("expected one sentence on one line", text);
    }
}

} // namespace polyhead::fuzz
#endif
