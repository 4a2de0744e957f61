// How threads of this library are made.
#include "helper_thread.h"

#include <csignal>
#include <initializer_list>

#if defined(__linux__)
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "threads.h"

namespace polyhead::runtime {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t stack_bytes = 0; // that of the system: sanitizers take much more
#else
constexpr size_t stack_bytes = size_t(1) << 20; // kernels take 128 KiB at most; the rest is for the thread-local variables of the program
#endif

// Blocks the signals that are sent to a process or thread while it lives; those that an instruction causes reach whom they concern.
class SignalsBlocked {
public:
    SignalsBlocked() noexcept {
        sigset_t all;
        sigfillset(&all);
        for (const int caused : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
            sigdelset(&all, caused);
        }
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked &) = delete;
    SignalsBlocked &operator=(const SignalsBlocked &) = delete;

private:
    sigset_t before_;
};

// What a thread would take over from the one that makes it.
class Attributes {
public:
    Attributes() noexcept : made_(pthread_attr_init(&attributes_) == 0) {
        if (!made_) {
            return;
        }
        pthread_attr_setinheritsched(&attributes_, PTHREAD_EXPLICIT_SCHED); // SCHED_OTHER
        if (stack_bytes > 0) {
            pthread_attr_setstacksize(&attributes_, stack_bytes);
        }
#if defined(__linux__) && defined(__GLIBC__)
        cpu_set_t cpus[cpu_set_bytes / sizeof(cpu_set_t)];
        if (cpus_of_process(cpus)) {
            pthread_attr_setaffinity_np(&attributes_, cpu_set_bytes, cpus);
        }
#endif
    }
    ~Attributes() {
        if (made_) {
            pthread_attr_destroy(&attributes_);
        }
    }
    Attributes(const Attributes &) = delete;
    Attributes &operator=(const Attributes &) = delete;
    const pthread_attr_t *get() const noexcept { return made_ ? &attributes_ : nullptr; }

private:
    pthread_attr_t attributes_;
    bool made_;
};

} // namespace

bool start_helper_thread(pthread_t *thread, void *(*main)(void *), void *argument) noexcept {
    const SignalsBlocked blocked;
    const Attributes attributes;
    // A set of CPUs that the system does not take any more is no reason to have no thread.
    return pthread_create(thread, attributes.get(), main, argument) == 0 || pthread_create(thread, nullptr, main, argument) == 0;
}

void take_priority_of_process() noexcept {
#if defined(__linux__)
    // A niceness belongs to a thread on Linux. Lowering it needs a right that most processes lack; then it stays.
    const int own = getpriority(PRIO_PROCESS, 0), of_process = getpriority(PRIO_PROCESS, static_cast<id_t>(getpid()));
    if (own != of_process) {
        setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), of_process);
    }
#endif
}

} // namespace polyhead::runtime
