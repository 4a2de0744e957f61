// Holds back what is written to standard error, and answers signals; what handlers call takes no memory.
#include "final_message.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <new>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "compile_process.h"
#include "output_files.h"

namespace polyhead::tools {
namespace {

int shown = -1; // the standard error that the user sees, while ours is held back
int held = -1;  // what was written in the meantime
char spare_stack[64 << 10];

void say(const char *text, size_t length) noexcept {
    for (ssize_t some = 0; length > 0 && (some = ::write(STDERR_FILENO, text, length)) > 0;) {
        text += some;
        length -= static_cast<size_t>(some);
    }
}

void say(const char *text) noexcept {
    say(text, std::strlen(text));
}

void show_again() noexcept {
    if (shown >= 0) {
        ::dup2(shown, STDERR_FILENO);
        ::close(shown);
        shown = -1;
    }
}

// The compiler first: it writes into the folder.
void leave_nothing() noexcept {
    end_compiler();
    remove_work_folder();
}

// One sentence: the last line that the compiler wrote, otherwise what is given.
void say_last(const char *otherwise) noexcept {
    const bool was_held = shown >= 0;
    show_again();
    char text[2048];
    const off_t size = was_held ? ::lseek(held, 0, SEEK_END) : 0;
    const off_t from = size > off_t(sizeof text) ? size - off_t(sizeof text) : 0;
    ssize_t length = was_held ? ::pread(held, text, sizeof text, from) : 0;
    while (length > 0 && text[length - 1] == '\n') {
        length--;
    }
    const char *line = length > 0 ? static_cast<const char *>(::memrchr(text, '\n', static_cast<size_t>(length))) : nullptr;
    line = line != nullptr ? line + 1 : text;
    length -= line - text;
    constexpr const char prefix[] = "LLVM ERROR: ";
    if (length > ssize_t(sizeof prefix) && std::memcmp(line, prefix, sizeof prefix - 1) == 0) {
        line += sizeof prefix - 1;
        length -= ssize_t(sizeof prefix - 1);
    }
    say("polyhead generate: ");
    if (length > 0) {
        say("compiler: ");
        say(line, static_cast<size_t>(length));
    } else {
        say(otherwise);
    }
    say("\n");
}

// A user or a crash; the signal's own action follows.
void end_by(int number) {
    const bool crashed = number != SIGINT && number != SIGTERM && number != SIGHUP;
    leave_nothing();
    if (crashed) {
        say_last(number == SIGABRT ? "the compiler gave up" : "the compiler crashed");
    } else {
        show_again();
    }
    std::signal(number, SIG_DFL);
    std::raise(number);
}

// LLVM ends the process by exit() when it cannot write.
void end_by_exit() {
    if (shown >= 0) {
        leave_nothing();
        say_last("the compiler ended the process");
    }
}

void answer_signals() {
    stack_t spare{};
    spare.ss_sp = spare_stack; // the crash may be a stack overflow
    spare.ss_size = sizeof spare_stack;
    ::sigaltstack(&spare, nullptr);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
        struct sigaction action{}, before{};
        action.sa_handler = end_by;
        action.sa_flags = SA_ONSTACK | int(SA_RESETHAND) | SA_NODEFER;
        if (::sigaction(number, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) { // keeps the effect of nohup
            ::sigaction(number, &action, nullptr);
        }
    }
    std::signal(SIGXFSZ, SIG_IGN); // a file that may not grow is an error like a full disk
    std::signal(SIGPIPE, SIG_IGN);
}

} // namespace

FinalMessage::FinalMessage() {
    answer_signals();
    std::set_new_handler([] { give_up("memory could not be allocated"); });
    std::atexit(end_by_exit);
    held = ::memfd_create("compiler", MFD_CLOEXEC);
    const int user = held >= 0 ? ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3) : -1; // without memory all is shown at once
    if (user >= 0 && ::dup2(held, STDERR_FILENO) == STDERR_FILENO) {
        shown = user;
    }
}

FinalMessage::~FinalMessage() {
    show_again();
    char text[4096];
    off_t at = 0;
    for (ssize_t some; held >= 0 && (some = ::pread(held, text, sizeof text, at)) > 0; at += some) {
        say(text, static_cast<size_t>(some));
    }
}

void give_up(const char *sentence) noexcept {
    show_again();
    leave_nothing();
    say("polyhead generate: ");
    say(sentence);
    say("\n");
    std::_Exit(1);
}

} // namespace polyhead::tools
