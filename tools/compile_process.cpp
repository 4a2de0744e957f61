// Starts the compiler's process, watches its time and memory, and ends it.
#include "compile_process.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "../plan/text.h"

extern char **environ;

namespace polyhead::tools {
namespace {

std::string &program() {
    static auto *const path = new std::string("polyhead-generate");
    return *path;
}

// The compiler of a process that has one at a time, for its signal handlers; 0: none.
std::atomic<pid_t> running{0};

// Seconds of processor time that a process has taken so far.
double processor_seconds(pid_t process) {
    clockid_t clock{};
    timespec time{};
    return clock_getcpuclockid(process, &clock) == 0 && clock_gettime(clock, &time) == 0 ? double(time.tv_sec) + 1e-9 * double(time.tv_nsec)
                                                                                         : 0;
}

// Memory that a process has now; 0 where the system does not report it.
int64_t resident_bytes(pid_t process) {
    std::string text;
    gen::read_file("/proc/" + std::to_string(process) + "/statm", &text);
    gen::TextReader reader(text);
    int64_t size = 0, resident = 0;
    return reader >> size >> resident ? resident * sysconf(_SC_PAGESIZE) : 0;
}

// A running compiler. It is ended and reaped whatever happens to the one who waits.
class Process {
public:
    explicit Process(pid_t id) : id_(id) {}
    ~Process() {
        if (id_ > 0) {
            kill(id_, SIGKILL);
            while (waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {
            }
            running = 0;
        }
    }
    Process(const Process &) = delete;
    Process &operator=(const Process &) = delete;
    pid_t id() const { return id_; }
    bool ended(int *status) {
        const pid_t found = waitpid(id_, status, WNOHANG);
        if (found == 0 || (found < 0 && errno == EINTR)) {
            return false;
        }
        if (found < 0) {
            *status = 0; // other code has waited for it; the answer has the result
        }
        id_ = -1;
        running = 0;
        return true;
    }

private:
    pid_t id_;
};

// A file without a name; it is removed when the last process closes it.
class Unnamed {
public:
    Unnamed() {
        const int made = ::memfd_create("compiler", MFD_CLOEXEC);
        file_ = made >= 0 ? ::fcntl(made, F_DUPFD_CLOEXEC, 3) : -1; // beyond the standard ones, which a program may have closed
        error_ = errno;
        if (made >= 0) {
            ::close(made);
        }
    }
    ~Unnamed() {
        if (file_ >= 0) {
            ::close(file_);
        }
    }
    Unnamed(const Unnamed &) = delete;
    Unnamed &operator=(const Unnamed &) = delete;
    int file() const { return file_; }
    int error() const { return file_ >= 0 ? 0 : error_; }
    // To be read from its start. Returns an errno or 0.
    int put(const std::string &text) const {
        size_t at = 0;
        for (ssize_t some = 0; at < text.size(); at += size_t(some)) {
            some = ::pwrite(file_, text.data() + at, text.size() - at, off_t(at));
            if (some <= 0) {
                return some < 0 ? errno : ENOSPC;
            }
        }
        return 0;
    }
    std::string text() const {
        std::string all;
        char part[4096];
        for (ssize_t some = 0; (some = ::pread(file_, part, sizeof part, off_t(all.size()))) > 0;) {
            all.append(part, size_t(some));
        }
        return all;
    }

private:
    int file_ = -1, error_ = 0;
};

// What a compiler reads and writes.
struct Streams {
    Unnamed job, answer, complaints;
};

// The asking process reacts to Ctrl-C and other signals, not the compiler; the signals wait until it has the compiler's process id.
std::string spawn(const Streams &streams, pid_t *process) {
    sigset_t waiting, before;
    sigemptyset(&waiting);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
        sigaddset(&waiting, signal);
    }
    std::string words[] = {compiler_program(), "--compile-job"};
    char *argv[] = {words[0].data(), words[1].data(), nullptr};
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, streams.job.file(), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, streams.answer.file(), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, streams.complaints.file(), STDERR_FILENO);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &waiting);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    pthread_sigmask(SIG_BLOCK, &waiting, &before);
    const int error = posix_spawnp(process, argv[0], &files, &attributes, argv, environ);
    running = error == 0 ? *process : 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return error == 0 ? "" : "cannot start the compiler " + words[0] + ": " + std::strerror(error);
}

std::string start(const std::string &job, const Streams &streams, pid_t *process) {
    int error = 0;
    for (const Unnamed *stream : {&streams.job, &streams.answer, &streams.complaints}) {
        error = error == 0 ? stream->error() : error;
    }
    error = error == 0 ? streams.job.put(job) : error;
    return error == 0 ? spawn(streams, process) : std::string("cannot send the job to the compiler: ") + std::strerror(error);
}

// The last line that the compiler wrote to standard error, without LLVM's prefix; empty: none.
std::string last_line(const Streams &streams) {
    std::string text = streams.complaints.text();
    text.erase(text.find_last_not_of('\n') + 1);
    text.erase(0, text.rfind('\n') + 1);
    constexpr const char prefix[] = "LLVM ERROR: ";
    return text.rfind(prefix, 0) == 0 ? text.substr(sizeof prefix - 1) : text;
}

// The answer of a compiler that has ended.
std::string outcome(const std::string &what, const Streams &streams, int status, std::string *error) {
    const std::string answer = streams.answer.text(), line = last_line(streams);
    if (WIFSIGNALED(status)) {
        *error = "the compiler crashed (signal " + std::to_string(WTERMSIG(status)) + ") on " + what + (line.empty() ? "" : ": " + line);
    } else if (answer.empty() && !line.empty()) {
        *error = "compiler: " + line;
    } else if (read_answer(answer).empty()) { // output of HL_DEBUG_CODEGEN and similar variables
        std::fputs(streams.complaints.text().c_str(), stderr);
    }
    return answer;
}

std::string beyond(const Process &process, const Limits &limits, const std::string &what) {
    if (limits.seconds > 0 && processor_seconds(process.id()) > limits.seconds) {
        return "limit_seconds: the compiler took more than " + gen::number_text(limits.seconds) + " s for " + what +
               "; expected a simpler problem, or a higher limit (0: none)";
    }
    if (limits.megabytes > 0 && resident_bytes(process.id()) > limits.megabytes * 1000000) {
        return "limit_megabytes: the compiler took more than " + std::to_string(limits.megabytes) + " MB for " + what +
               "; expected a simpler problem, or a higher limit (0: none)";
    }
    return "";
}

// Has a job done by another process; `what` names it in sentences. Returns the answer.
std::string serve_apart(const std::string &job, const std::string &what, const Limits &limits, std::string *error) {
    const Streams streams;
    pid_t id = 0;
    *error = start(job, streams, &id);
    if (!error->empty()) {
        return "";
    }
    Process process(id);
    int status = 0;
    for (int turn = 0; !process.ended(&status); turn++) {
        *error = beyond(process, limits, what);
        if (!error->empty()) {
            return "";
        }
        if (limits.while_waiting) {
            limits.while_waiting();
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(turn < 100 ? 2 : 10));
    }
    return outcome(what, streams, status, error);
}

} // namespace

void set_compiler_program(const std::string &path) {
    program() = path;
}

const std::string &compiler_program() {
    return program();
}

void end_compiler() noexcept {
    const pid_t process = running;
    if (process > 0) {
        ::kill(process, SIGKILL);
        ::waitpid(process, nullptr, 0);
    }
}

gen::CompiledVariant compile_apart(const CompileJob &job, const Limits &limits, std::string *error) {
    const std::string answer = serve_apart(job_text(job), std::string("frame ") + job.plan.frame->name(), limits, error);
    return error->empty() ? read_answer(job, answer, error) : gen::CompiledVariant();
}

std::string make_apart(const FileJob &job, const Limits &limits) {
    std::string error;
    const std::string what = job.objects.empty() ? "the runtime of " + job.target : "an archive";
    const std::string answer = serve_apart(job_text(job), what, limits, &error);
    return error.empty() ? read_answer(answer) : error;
}

std::string describe_source_apart(const ExpressionSource &source, const Limits &limits, std::string *text) {
    std::string error;
    const std::string answer = serve_apart(job_text(source), "'" + source.file + "'", limits, &error);
    return error.empty() ? read_source_answer(answer, text) : error;
}

} // namespace polyhead::tools
