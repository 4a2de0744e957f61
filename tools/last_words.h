// How the generator ends when it cannot go on: one sentence, whoever ends it, and nothing left on the disk.
#pragma once

#include <string>

namespace polyhead::tools {

// While this lives, what the compiler writes to standard error waits for the end. A signal, an exit() or a crash inside of the compiler
// then becomes one sentence and leaves no work folder behind; the status is that of the signal, or 1. There is one in a process.
class LastWords {
public:
    LastWords();
    ~LastWords(); // says what has waited
    LastWords(const LastWords &) = delete;
    LastWords &operator=(const LastWords &) = delete;
};

// Says the sentence, and nothing else, and ends the process with status 1.
[[noreturn]] void give_up(const std::string &sentence) noexcept;

} // namespace polyhead::tools
