// Stops every read of some pages by their protection, and runs the instruction that reads by a single step.
#include "changing_memory.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

namespace polyhead::test {

namespace {

// What the handlers of the signals see.
struct Watch {
    char *pages = nullptr;
    size_t bytes = 0;
    int32_t *elements = nullptr; // the other mapping
    size_t count = 0;
    int read = 0, change_at = -1;
    int32_t value = 0;
    bool all = true;
};
Watch watch;

#if defined(__x86_64__) && defined(__linux__)

constexpr greg_t single_step = 0x100;

void on_read(int, siginfo_t *info, void *context) {
    auto *const address = static_cast<char *>(info->si_addr);
    if (address < watch.pages || address >= watch.pages + watch.bytes) {
        std::signal(SIGSEGV, SIG_DFL); // a fault of the code under test: it happens again
        return;
    }
    if (watch.read++ == watch.change_at) {
        for (size_t i = 0; i < watch.count; i += watch.all ? 1 : 2) {
            watch.elements[i] = watch.value;
        }
    }
    mprotect(watch.pages, watch.bytes, PROT_READ);
    static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_EFL] |= single_step;
}

void after_read(int, siginfo_t *, void *context) {
    mprotect(watch.pages, watch.bytes, PROT_NONE);
    static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_EFL] &= ~single_step;
}

class Handler {
public:
    Handler(int signal, void (*handler)(int, siginfo_t *, void *)) : signal_(signal) {
        struct sigaction action = {};
        action.sa_sigaction = handler;
        action.sa_flags = SA_SIGINFO;
        sigaction(signal, &action, &before_);
    }
    ~Handler() { sigaction(signal_, &before_, nullptr); }
    Handler(const Handler &) = delete;
    Handler &operator=(const Handler &) = delete;

private:
    int signal_;
    struct sigaction before_ = {};
};

void run_watched(const std::function<void()> &call) {
    const Handler reads(SIGSEGV, on_read), steps(SIGTRAP, after_read);
    mprotect(watch.pages, watch.bytes, PROT_NONE);
    call();
    mprotect(watch.pages, watch.bytes, PROT_READ);
}

#else

void run_watched(const std::function<void()> &) {
    std::abort(); // not supported(): no caller comes here
}

#endif

} // namespace

bool ChangingMemory::supported() {
#if defined(__x86_64__) && defined(__linux__)
    return true;
#else
    return false;
#endif
}

ChangingMemory::ChangingMemory(const std::vector<int32_t> &elements)
    : original_(elements), page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    bytes_ = std::max<size_t>(1, (elements.size() * sizeof(int32_t) + page_ - 1) / page_) * page_;
    const int file = memfd_create("elements", 0);
    void *const reserved = mmap(nullptr, bytes_ + page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes_)) != 0 || reserved == MAP_FAILED) {
        std::abort(); // a test without memory has nothing to say
    }
    const auto map = [&](void *place, int protection, int flags) {
        void *const memory = mmap(place, bytes_, protection, MAP_SHARED | flags, file, 0);
        return memory == MAP_FAILED ? (std::abort(), nullptr) : static_cast<char *>(memory);
    };
    pages_ = map(reserved, PROT_READ, MAP_FIXED);
    writable_ = map(nullptr, PROT_READ | PROT_WRITE, 0);
    close(file);
    const size_t before = bytes_ - elements.size() * sizeof(int32_t);
    watched_ = reinterpret_cast<int32_t *>(pages_ + before);
    other_ = reinterpret_cast<int32_t *>(writable_ + before);
    std::copy(elements.begin(), elements.end(), other_);
}

ChangingMemory::~ChangingMemory() {
    munmap(pages_, bytes_ + page_);
    munmap(writable_, bytes_);
}

int ChangingMemory::change_at(int read, int32_t value, bool all, const std::function<void()> &call) {
    watch = {pages_, bytes_, other_, original_.size(), 0, read, value, all};
    run_watched(call);
    std::copy(original_.begin(), original_.end(), other_);
    return watch.read;
}

void ChangingMemory::change_at_each(int32_t value, const std::function<void()> &call) {
    constexpr int first_ones = 30, others = 8;
    const int reads = change_at(-1, 0, true, call);
    for (int read = 0; read < reads; read += read < first_ones ? 1 : std::max(1, (reads - first_ones) / others)) {
        change_at(read, value, true, call);
        if (original_.size() > 1) {
            change_at(read, value, false, call);
        }
    }
}

} // namespace polyhead::test
