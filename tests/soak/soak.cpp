// Soak: 8 threads repeat recorded calls in changing order, refused calls, calls without memory, changes of the number of threads and forks,
// for the seconds that the command line says. Every answer has the recorded bytes, and after a warm-up the process holds no more than
// before.
//
// Work goes in rounds. Each has threads of its own, so that their ends are part of it; between rounds nothing runs, and gauges are read.
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <random>
#include <thread>

#include "../../runtime/memory/memory.h"
#include "cases.h"
#include "gauges.h"
#include "instruments/calls/call_tensors.h"

// The N-th allocation of kernel memory from now fails, in whatever thread it falls; 0: none. Kernels and packed weights take their memory
// by this function of the C library.
static std::atomic<long> allocations_until_failure{0}, failures_injected{0};

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" void *aligned_alloc(size_t alignment, size_t bytes) {
    if (allocations_until_failure.load(std::memory_order_relaxed) > 0 && allocations_until_failure.fetch_sub(1) == 1) {
        failures_injected.fetch_add(1);
        return nullptr;
    }
    void *memory = nullptr;
    return posix_memalign(&memory, std::max(alignment, sizeof(void *)), bytes) == 0 ? memory : nullptr;
}
static constexpr bool memory_can_fail = true;
#else
static constexpr bool memory_can_fail = false;
#endif

// ThreadSanitizer ends a child that starts threads.
#if defined(__SANITIZE_THREAD__)
static constexpr bool may_fork = false;
#else
static constexpr bool may_fork = true;
#endif

namespace polyhead::soak {
namespace {

using Clock = std::chrono::steady_clock;
using Random = std::minstd_rand;

constexpr int num_threads = 8, num_rounds = 12;
constexpr int most_seconds_of_child = 120; // a child that is slower hangs

struct Counts {
    std::atomic<long> calls{0}, refused{0}, without_memory{0}, forks{0}, changes{0};
};

struct Soak {
    std::vector<std::unique_ptr<test::KernelSubject>> subjects;
    std::vector<std::unique_ptr<Case>> cases;
    Counts counts;
    std::atomic<bool> failed{false};

    void fail(const std::string &sentence) {
        static std::mutex one;
        const std::lock_guard<std::mutex> lock(one);
        failed = true;
        std::printf("FAILED: %s\n", sentence.c_str());
        std::fflush(stdout);
    }
};

const Case &any_case(const Soak &soak, Random &random) {
    return *soak.cases[random() % soak.cases.size()];
}

// The number of failures that were injected before a call. One may fall into any thread, also into the rules of a call that is refused for
// something else: then a lack of memory is a right answer.
class Injected {
public:
    bool explains(const polyhead_status &status) const {
        return status.code == POLYHEAD_OUT_OF_MEMORY && failures_injected.load() != before_;
    }

private:
    const long before_ = failures_injected.load();
};

void call(Soak &soak, Random &random) {
    const Case &one = any_case(soak, random);
    const Injected injected;
    const Case::Outcome outcome = one.run();
    ++soak.counts.calls;
    if (injected.explains(outcome.status)) {
        if (outcome.written) {
            soak.fail(one.name() + ": a call without memory wrote its outputs");
        }
        ++soak.counts.without_memory;
    } else if (outcome.status.code != POLYHEAD_OK || !outcome.right) {
        soak.fail(one.name() + ": " + (outcome.status.code == POLYHEAD_OK ? "other bytes than at first" : outcome.status.message));
    }
}

polyhead_tensor &any_output(polyhead_args *args) {
    for (const test::CallTensor &output : test::outputs_of(args->op)) {
        if ((args->*output.tensor).data) {
            return args->*output.tensor;
        }
    }
    return args->out;
}

void refused_call(Soak &soak, Random &random) {
    const Case &one = any_case(soak, random);
    Case::Memory memory;
    polyhead_args args = one.args(&memory);
    switch (random() % 5) {
    case 0:
        args.out.data = nullptr;
        args.out.rank = 0;
        break;
    case 1:
        args.query.shape[args.query.rank - 1] += 1;
        break;
    case 2:
        args.out.dtype = POLYHEAD_I8;
        break;
    case 3:
        args.op = args.op == POLYHEAD_LINEAR ? POLYHEAD_SDPA : POLYHEAD_LINEAR;
        break;
    default: // out is an input of gradients
        any_output(&args) = args.query;
    }
    const Case::Memory before = memory;
    const Injected injected;
    const polyhead_status status = one.run(args);
    ++soak.counts.refused;
    const bool refused = status.code != POLYHEAD_OK && status.code != POLYHEAD_INTERNAL && status.code != POLYHEAD_OUT_OF_MEMORY;
    if ((!refused && !injected.explains(status)) || memory != before) {
        soak.fail(one.name() + ": refused for damaged arguments with '" + status.message + "', or the outputs were written");
    }
}

void call_without_memory(Soak &soak, Random &random) {
    if (memory_can_fail) {
        runtime::give_kept_memory_back(); // or most calls ask the system for none
        allocations_until_failure = 1 + static_cast<long>(random() % 4);
        call(soak, random);
        allocations_until_failure = 0;
    }
}

// A child of a process whose other threads are inside kernels: it runs calls of its own and exits.
void fork_child(Soak &soak, Random &random) {
    const pid_t child = fork();
    if (child == 0) {
        allocations_until_failure = 0;
        if (random() % 2 == 0) {
            polyhead_set_num_threads(1 + static_cast<int32_t>(random() % 4));
        }
        for (int i = 0; i < 3; ++i) {
            const Case::Outcome outcome = any_case(soak, random).run();
            if (outcome.status.code != POLYHEAD_OK || !outcome.right) {
                _exit(outcome.status.code == POLYHEAD_OK ? 100 : outcome.status.code);
            }
        }
        random() % 2 == 0 ? _exit(0) : std::_Exit(0);
    }
    ++soak.counts.forks;
    const Clock::time_point start = Clock::now();
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (Clock::now() - start > std::chrono::seconds(most_seconds_of_child)) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            return soak.fail("a forked child hangs");
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        soak.fail("a forked child ended with status " + std::to_string(status) + ", expected 0");
    }
}

void work(Soak &soak, unsigned seed, Clock::time_point end) {
    Random random(seed);
    while (Clock::now() < end && !soak.failed) {
        const unsigned what = static_cast<unsigned>(random() % 1000);
        if (what < 900) {
            call(soak, random);
        } else if (what < 960) {
            refused_call(soak, random);
        } else if (what < 980) {
            call_without_memory(soak, random);
        } else if (what < 995) {
            polyhead_set_num_threads(1 + static_cast<int32_t>(random() % 5));
            ++soak.counts.changes;
        } else if (may_fork) {
            fork_child(soak, random);
        }
    }
}

// How much of the memory of calls is kept is a matter of chance: of the calls that a round ended with. Threads that end give theirs back.
// Of the memory that the process keeps, a block of nearly all that it may keep, of which no page is touched, takes the place of all others.
Gauges gauges_at_rest() {
    polyhead_set_num_threads(1); // the helpers end
    runtime::give_memory(runtime::take_memory(runtime::kept_by_process - (size_t(1) << 20)));
    Gauges::at_rest(1);
    malloc_trim(0);
    return Gauges::now();
}

// Whether an allocation that fails is one of a call: nothing is kept before it, so that calls with scratch memory must ask for some.
bool failures_reach_calls(const Soak &soak) {
    for (const auto &one : soak.cases) {
        runtime::give_kept_memory_back();
        const long injected = failures_injected.load();
        allocations_until_failure = 1;
        const int32_t code = one->run().status.code;
        allocations_until_failure = 0;
        if (failures_injected.load() != injected) {
            return code == POLYHEAD_OUT_OF_MEMORY;
        }
    }
    return false;
}

// A measure that cannot tell a leak from none would prove nothing.
std::string check_of_the_measure() {
    std::vector<Gauges> flat, leaking;
    for (long round = 0; round < num_rounds; ++round) {
        flat.push_back({100000 + round % 3 * 1000 + (round == 0 ? -50000 : 0), 900, 5, 4});
        leaking.push_back({100000, 900 + 5 * round, 5, 4});
    }
    return !growth(flat).empty() ? growth(flat) : growth(leaking).empty() ? "a leak of 5 mappings a round is not seen" : "";
}

int run(double seconds) {
    Soak soak;
    if (const std::string sentence = check_of_the_measure(); !sentence.empty()) {
        soak.fail(sentence);
    }
    polyhead_set_num_threads(1);
    soak.cases = recorded_cases(&soak.subjects);
    std::printf("%zu calls of %zu kernels\n", soak.cases.size(), soak.subjects.size());
    if (memory_can_fail && !failures_reach_calls(soak)) {
        soak.fail("no call met a lack of memory: the injection does not reach the library");
    }
    Random random(1);
    std::vector<Gauges> rounds;
    const Clock::time_point start = Clock::now();
    for (int round = 0; round < num_rounds && !soak.failed; ++round) {
        const auto end =
            start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds * (round + 1) / num_rounds));
        std::vector<std::thread> threads;
        for (int i = 0; i < num_threads; ++i) {
            threads.emplace_back(work, std::ref(soak), static_cast<unsigned>(random()), end);
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        rounds.push_back(gauges_at_rest());
        std::printf("round %d: %s\n", round + 1, rounds.back().text().c_str());
    }
    const Counts &c = soak.counts;
    std::printf("%ld calls, %ld refused, %ld without memory, %ld changes of threads, %ld forks\n", c.calls.load(), c.refused.load(),
                c.without_memory.load(), c.changes.load(), c.forks.load());
    const std::string grown = soak.failed ? "" : growth(rounds);
    if (!grown.empty()) {
        soak.fail(grown);
    }
    return soak.failed ? 1 : 0;
}

} // namespace
} // namespace polyhead::soak

int main(int argc, char **argv) {
    mallopt(M_TRIM_THRESHOLD, 128 << 10); // malloc_trim leaves the ends of the arenas of threads: let them be short
    const char *environment = std::getenv("POLYHEAD_SOAK_SECONDS");
    return polyhead::soak::run(argc > 1 ? std::atof(argv[1]) : environment ? std::atof(environment) : 10.0);
}
