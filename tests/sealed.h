// Lets a process ask nothing more of the system.
#ifndef POLYHEAD_TESTS_SEALED_H
#define POLYHEAD_TESTS_SEALED_H

#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <csignal>
#include <cstddef>
#include <initializer_list>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace polyhead::test {

constexpr bool can_seal = true;
constexpr int unsealed_code = 99;

// Says which call it was, and ends the process as the filter would.
inline void end_unsealed(int, siginfo_t *info, void *) {
    char text[] = "system call 000 of a sealed process\n";
    for (int place = 2, number = info->si_syscall; place >= 0; --place, number /= 10) {
        text[12 + place] = static_cast<char>('0' + number % 10);
    }
    (void)!write(2, text, sizeof text - 1);
    _exit(unsealed_code);
}

// From now on a system call of any thread of the process ends it with unsealed_code, but sched_yield, write and the end of the process.
// False where the system has no such filter. It cannot be undone: for a child.
inline bool seal() {
    struct sigaction action = {};
    action.sa_sigaction = end_unsealed;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSYS, &action, nullptr);
    std::vector<sock_filter> filter = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
    for (const long allowed : {SYS_sched_yield, SYS_write, SYS_exit_group}) {
        filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(allowed), 0, 1));
        filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    }
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP));
    const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

} // namespace polyhead::test
#else
namespace polyhead::test {
constexpr bool can_seal = false; // sanitizers ask for memory of their own
constexpr int unsealed_code = 99;
inline bool seal() {
    return false;
}
} // namespace polyhead::test
#endif
#endif
