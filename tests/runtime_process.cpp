// What a program does not expect from a library, a word at a time: its output, signals, locale, affinity, rounding, umask, and what its
// threads are.
#include <atomic>
#include <cfenv>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <polyhead/cache.h>

#include "../runtime/threads/threads.h"
#include "child_process.h"
#include "instruments/calls/not_run.h"
#include "runtime_calls.h"
#include "runtime_loops.h"
#include "support/environment.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// The threads of this process, by number.
std::set<int> threads_now() {
    std::set<int> threads;
    DIR *folder = opendir("/proc/self/task");
    REQUIRE(folder != nullptr);
    while (const dirent *entry = readdir(folder)) {
        if (entry->d_name[0] != '.') {
            threads.insert(std::atoi(entry->d_name));
        }
    }
    closedir(folder);
    return threads;
}

// The line of /proc/self/task/THREAD/status that begins with `name`, without it; empty when the thread has ended.
std::string status_of(int thread, const std::string &name) {
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/status");
    for (std::string line; std::getline(file, line);) {
        if (line.rfind(name + ":", 0) == 0) {
            return line.substr(line.find_first_not_of(" \t", name.size() + 1));
        }
    }
    return "";
}

// A call whose parallel loop is long enough to bring all helpers.
struct BusyCall {
    SdpaCall call;
    BusyCall() {
        call.fake.on_call = [](FakeKernel &f) {
            parallel(f.user_context, 64, [](int) {
                usleep(200);
                return 0;
            });
        };
    }
    polyhead_status run() { return call.fake.run(call.args); }
};

// The helpers of a new pool of `threads` that was first used by `first`.
template <typename First> std::set<int> helpers_made_by(int threads, const First &first) {
    set_num_threads(1);
    BusyCall().run(); // the pool before is let go
    set_num_threads(threads);
    std::thread([] {}).join(); // with the first thread of a process a sanitizer makes one of its own
    const std::set<int> before = threads_now();
    std::set<int> helpers;
    first();
    for (const int thread : threads_now()) {
        if (before.count(thread) == 0) {
            helpers.insert(thread);
        }
    }
    return helpers;
}

// Every function of the API once, with success and with a refusal.
void call_everything() {
    BusyCall busy;
    CHECK(busy.run().code == POLYHEAD_OK);
    SdpaCall bad;
    bad.args.query = polyhead_tensor{};
    CHECK(bad.fake.run(bad.args).code == POLYHEAD_NULL_POINTER);
    char text[4096];
    CHECK(polyhead_explain(&busy.call.fake.table, &busy.call.args, text, sizeof text).code == POLYHEAD_OK);
    polyhead_status status{};
    CHECK(polyhead_scratch_bytes(&busy.call.fake.table, &busy.call.args, &status) >= 0);
    std::vector<float> cache(2 * 8 * 8), rows(2 * 8);
    std::vector<int32_t> lengths = {0};
    polyhead_cache to = polyhead_cache_of(view(cache.data(), {1, 2, 8, 8}), {}, {});
    polyhead_new_keys keys = polyhead_new_keys_of();
    keys.key = view(rows.data(), {1, 2, 1, 8});
    keys.lengths = view(lengths.data(), {1});
    CHECK(polyhead_append(&to, &keys).code == POLYHEAD_OK);
    CHECK(polyhead_copy_page(&to, 5, 6).code != POLYHEAD_OK);
    std::vector<float> sums(2), out(2 * 8);
    const polyhead_state part = {keys.key, view(sums.data(), {1, 2, 1})};
    const polyhead_tensor result = view(out.data(), {1, 2, 1, 8});
    CHECK(polyhead_merge_states(&part, 1, nullptr, &result, nullptr).code == POLYHEAD_OK);
    CHECK(polyhead_rotate(&keys.key, nullptr, &result).code != POLYHEAD_OK);
    PagePool pool;
    int32_t page = 0;
    CHECK(PagePool::make(2, &pool).ok());
    CHECK(pool.take(1, &page).ok());
    CHECK(!pool.take(9, &page).ok());
    MhaCall layer;
    CHECK(layer.fake.run(layer.args).code == POLYHEAD_OK);
    set_num_threads(3);
    CHECK(busy.run().code == POLYHEAD_OK);
    set_num_threads(0);
}

// What a caller has of its own and a library may not change.
struct OwnState {
    std::vector<unsigned char> bytes;
    std::string locale = std::setlocale(LC_ALL, nullptr);
    int rounding = std::fegetround();
    mode_t mask;
    OwnState() {
        sigset_t blocked;
        sigemptyset(&blocked);
        pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
        for (int number = 1; number < 65; ++number) {
            bytes.push_back(static_cast<unsigned char>(sigismember(&blocked, number)));
            struct sigaction action = {};
            if (sigaction(number, nullptr, &action) == 0) {
                const auto *handler = reinterpret_cast<const unsigned char *>(&action.sa_handler);
                bytes.insert(bytes.end(), handler, handler + sizeof action.sa_handler);
            }
        }
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        sched_getaffinity(0, sizeof cpus, &cpus);
        const auto *all = reinterpret_cast<const unsigned char *>(&cpus);
        bytes.insert(bytes.end(), all, all + sizeof cpus);
        int state = 0;
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
        pthread_setcancelstate(state, nullptr);
        bytes.push_back(static_cast<unsigned char>(state));
        mask = umask(0);
        umask(mask);
    }
    bool operator==(const OwnState &other) const {
        return bytes == other.bytes && locale == other.locale && rounding == other.rounding && mask == other.mask;
    }
};

} // namespace

TEST_CASE("process: calls change nothing of their caller", "[runtime]") {
    const int rounding_before = std::fegetround();
    const mode_t mask_before = umask(027);
    sigset_t some, before;
    sigemptyset(&some);
    sigaddset(&some, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &some, &before);
    std::fesetround(FE_UPWARD);
    const OwnState own;
    call_everything();
    CHECK(own == OwnState());
    std::fesetround(rounding_before);
    umask(mask_before);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST_CASE("process: calls print nothing", "[runtime]") {
    std::fflush(nullptr);
    char name[] = "/tmp/polyhead_printed_XXXXXX";
    const int file = mkstemp(name);
    REQUIRE(file >= 0);
    unlink(name);
    const int code = in_child(End::at_once, [&] { // whose outputs are ours to change
        dup2(file, STDOUT_FILENO);
        dup2(file, STDERR_FILENO);
        SdpaCall call;
        call.fake.on_call = [](FakeKernel &f) { halide_error(f.user_context, "an error of a kernel"); };
        call.fake.result = -1;
        const bool failed = call.fake.run(call.args).code == POLYHEAD_INTERNAL;
        call.args.query = polyhead_tensor{};
        const bool refused = call.fake.run(call.args).code == POLYHEAD_NULL_POINTER;
        std::fflush(nullptr);
        return failed && refused ? 0 : 1;
    });
    CHECK(code == 0);
    CHECK(lseek(file, 0, SEEK_END) == 0);
    close(file);
}

TEST_CASE("process: helper threads take no signals", "[runtime]") {
    BusyCall call;
    const std::set<int> helpers = helpers_made_by(4, [&] { call.run(); });
    CHECK(helpers.size() == 3);
    for (const int helper : helpers) {
        const uint64_t blocked = std::strtoull(status_of(helper, "SigBlk").c_str(), nullptr, 16);
        for (const int number : {SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGCHLD, SIGPIPE, SIGIO, SIGPROF}) {
            INFO(number);
            CHECK((blocked >> (number - 1) & 1) == 1);
        }
        for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) { // what an instruction causes reaches the program's handler
            INFO(number);
            CHECK((blocked >> (number - 1) & 1) == 0);
        }
    }
    set_num_threads(0);
}

TEST_CASE("process: the first caller's CPUs are not those of the helpers", "[runtime]") {
    if (runtime::usable_cpus() < 2) {
        return note_not_run("a pinned caller", "this process may run on one CPU alone");
    }
    const std::string all = status_of(getpid(), "Cpus_allowed_list");
    int told = 0, caller = 0;
    const std::set<int> helpers = helpers_made_by(3, [&] {
        std::thread([&] {
            caller = gettid();
            cpu_set_t one;
            sched_getaffinity(0, sizeof one, &one);
            int first = 0;
            while (!CPU_ISSET(first, &one)) {
                ++first;
            }
            CPU_ZERO(&one);
            CPU_SET(first, &one);
            REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
            BusyCall call;
            CHECK(call.run().code == POLYHEAD_OK);
            told = runtime::usable_cpus();
        }).join();
        while (threads_now().count(caller) != 0) { // the system lists it for a moment after join()
            std::this_thread::yield();
        }
    });
    CHECK(helpers.size() == 2);
    CHECK(told == runtime::usable_cpus());
    for (const int helper : helpers) {
        CHECK(status_of(helper, "Cpus_allowed_list") == all);
    }
    set_num_threads(0);
}

TEST_CASE("process: a cancelled caller ends after its call", "[runtime]") {
    if (sanitized()) {
        return note_not_run("a cancelled thread", "sanitizers do not follow one that is cancelled");
    }
    set_num_threads(3);
    struct Caller {
        std::atomic<int> begun{0}, ended{0};
        BusyCall call;
    };
    Caller callers[3];
    for (Caller &caller : callers) {
        caller.call.call.fake.on_call = [&caller](FakeKernel &f) {
            ++caller.begun;
            parallel(f.user_context, 8, [](int) {
                usleep(2000); // a cancellation point, in the caller and in helpers
                return 0;
            });
            ++caller.ended;
        };
    }
    pthread_t threads[3];
    for (int i = 0; i < 3; ++i) {
        const auto calls = [](void *one) -> void * {
            for (;;) {
                static_cast<Caller *>(one)->call.run();
                pthread_testcancel();
            }
        };
        REQUIRE(pthread_create(&threads[i], nullptr, calls, &callers[i]) == 0);
    }
    for (const Caller &caller : callers) {
        while (caller.begun == 0) {
            std::this_thread::yield();
        }
    }
    for (const pthread_t thread : threads) {
        pthread_cancel(thread);
    }
    for (const pthread_t thread : threads) {
        void *result = nullptr;
        pthread_join(thread, &result);
        CHECK(result == PTHREAD_CANCELED);
    }
    for (const Caller &caller : callers) {
        CHECK(caller.begun == caller.ended);
    }
    BusyCall after;
    CHECK(after.run().code == POLYHEAD_OK);
    set_num_threads(0);
}

TEST_CASE("process: how long idle helpers look for work", "[runtime]") {
    set_wait(-1);
    set_num_threads(1);
    CHECK(wait() == 1000);
    set_num_threads(runtime::most_threads);
    CHECK(wait() == (runtime::usable_cpus() < runtime::most_threads ? 20 : 1000));
    set_wait(2000000);
    CHECK(wait() == 1000000);
    set_wait(0);
    CHECK(wait() == 0);
    BusyCall call;
    for (const int microseconds : {0, 1000000}) {
        set_wait(microseconds);
        const std::set<int> helpers = helpers_made_by(2, [&] { call.run(); });
        REQUIRE(helpers.size() == 1);
        const auto sleeps = [&] { return status_of(*helpers.begin(), "State").rfind('S', 0) == 0; };
        int asleep = 0, tries = 0;
        for (; tries < 20; ++tries) { // 100 ms
            usleep(5000);
            asleep += sleeps();
        }
        INFO(microseconds << " microseconds: asleep at " << asleep << " of " << tries << " looks");
        CHECK((microseconds == 0 ? asleep > tries / 2 : asleep < tries / 2));
    }
    set_wait(-1);
    set_num_threads(0);
}

// Run by the case after it, with POLYHEAD_WAIT in its environment from the start.
TEST_CASE("process: in a process of its own: the wait of the environment", "[.]") {
    const char *expected = std::getenv("POLYHEAD_TEST_WAIT");
    REQUIRE(expected != nullptr);
    set_num_threads(1);
    CHECK(std::to_string(wait()) == expected);
    set_wait(7);
    CHECK(wait() == 7);
    set_wait(-1);
    CHECK(std::to_string(wait()) == expected);
}

TEST_CASE("process: POLYHEAD_WAIT", "[runtime]") {
    const std::pair<const char *, const char *> told[] = {{"0", "0"},      {"250", "250"},   {"99999999999999999999", "1000000"},
                                                          {"", "1000"},    {"1.5", "1000"},  {"-3", "1000"},
                                                          {"12x", "1000"}, {"1.023", "1000"}};
    for (const auto &[value, expected] : told) {
        INFO(value);
        CHECK(in_child(End::at_once, [value = value, expected = expected] {
                  setenv("POLYHEAD_WAIT", value, 1);
                  setenv("POLYHEAD_TEST_WAIT", expected, 1);
                  const int nothing = open("/dev/null", O_WRONLY);
                  dup2(nothing, STDOUT_FILENO);
                  execl("/proc/self/exe", "test_runtime", "process: in a process of its own: the wait of the environment", nullptr);
                  return 100;
              }) == 0);
    }
}
