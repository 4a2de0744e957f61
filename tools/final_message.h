// How the generator ends when it cannot continue: with one sentence, whatever the cause, and without files left on the disk.
#pragma once

namespace polyhead::tools {

// While this object exists, the compiler's output to standard error is kept until the end. A signal, an exit() or a crash inside of the
// compiler then becomes one sentence and leaves no work folder; the status is that of the signal, or 1. So does a failing allocation: it is
// not thrown, because not all libraries bear that. A process has only one.
class FinalMessage {
public:
    FinalMessage();
    ~FinalMessage(); // writes what was kept
    FinalMessage(const FinalMessage &) = delete;
    FinalMessage &operator=(const FinalMessage &) = delete;
};

// Prints only the sentence and ends the process with status 1.
[[noreturn]] void give_up(const char *sentence) noexcept;

} // namespace polyhead::tools
