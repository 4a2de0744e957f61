// The default number of threads, cgroup quotas of both versions, and many threads calling one kernel.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <sched.h>
#include <unistd.h>

#include "../runtime/threads/threads.h"
#include "runtime_loops.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;
namespace fs = std::filesystem;

namespace {

// How many threads take part in a parallel loop whose tasks last long enough for all to join.
size_t threads_of_a_loop() {
    struct Seen {
        std::mutex mutex;
        std::set<std::thread::id> ids;
    } seen;
    auto task = [](void *, int, uint8_t *closure) {
        auto *all = reinterpret_cast<Seen *>(closure);
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        const std::lock_guard<std::mutex> lock(all->mutex);
        all->ids.insert(std::this_thread::get_id());
        return 0;
    };
    CHECK(halide_do_par_for(nullptr, task, 0, 64, reinterpret_cast<uint8_t *>(&seen)) == 0);
    return seen.ids.size();
}

// A file tree in place of the root of a system.
struct FakeRoot {
    fs::path path = fs::temp_directory_path() / ("polyhead_root_" + std::to_string(getpid()));
    FakeRoot() { fs::remove_all(path); }
    ~FakeRoot() { fs::remove_all(path); }
    void file(const std::string &name, const std::string &text) const {
        fs::create_directories((path / name).parent_path());
        std::ofstream(path / name) << text;
    }
    int quota() const { return runtime::cgroup_cpu_quota(path.c_str()); }
};

struct Environment {
    std::string before;
    bool had;
    Environment() : had(std::getenv("HL_NUM_THREADS") != nullptr) {
        if (had) {
            before = std::getenv("HL_NUM_THREADS");
        }
    }
    ~Environment() { had ? setenv("HL_NUM_THREADS", before.c_str(), 1) : unsetenv("HL_NUM_THREADS"); }
};

} // namespace

TEST_CASE("threads: cgroup version 2", "[runtime]") {
    FakeRoot root;
    CHECK(root.quota() == 0); // no cgroups at all
    root.file("proc/self/cgroup", "0::/app/worker\n");
    CHECK(root.quota() == 0);
    root.file("sys/fs/cgroup/app/worker/cpu.max", "max 100000\n");
    CHECK(root.quota() == 0);
    root.file("sys/fs/cgroup/app/worker/cpu.max", "250000 100000\n");
    CHECK(root.quota() == 3); // rounded up
    root.file("sys/fs/cgroup/app/cpu.max", "200000 100000\n");
    CHECK(root.quota() == 2); // a group above is tighter
    root.file("sys/fs/cgroup/cpu.max", "50000 100000\n");
    CHECK(root.quota() == 1);
    root.file("sys/fs/cgroup/cpu.max", "rubbish\n");
    CHECK(root.quota() == 2);
}

TEST_CASE("threads: in a container the group's path is the host's and only the mount point exists", "[runtime]") {
    FakeRoot root;
    root.file("proc/self/cgroup", "0::/../../docker/abc\n");
    root.file("sys/fs/cgroup/cpu.max", "400000 100000\n");
    CHECK(root.quota() == 4);
}

TEST_CASE("threads: cgroup version 1", "[runtime]") {
    FakeRoot root;
    root.file("proc/self/cgroup", "9:name=systemd:/\n4:memory:/x\n3:cpuset:/y\n2:cpuacct,cpu:/docker/abc\n0::/\n");
    CHECK(root.quota() == 0);
    root.file("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "-1\n");
    root.file("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "100000\n");
    CHECK(root.quota() == 0);
    root.file("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "150000\n");
    CHECK(root.quota() == 2);
    root.file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
    root.file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    CHECK(root.quota() == 1);
}

TEST_CASE("threads: default and override", "[runtime]") {
    Environment environment;
    unsetenv("HL_NUM_THREADS");
    cpu_set_t set;
    REQUIRE(sched_getaffinity(0, sizeof set, &set) == 0);
    const int standard = runtime::default_num_threads();
    CHECK(standard >= 1);
    CHECK(standard <= CPU_COUNT(&set));
    setenv("HL_NUM_THREADS", "7", 1);
    CHECK(runtime::default_num_threads() == 7);
    for (const char *text : {"0", "-3", "many", ""}) {
        setenv("HL_NUM_THREADS", text, 1);
        CHECK(runtime::default_num_threads() == standard);
    }
    set_num_threads(5);
    CHECK(num_threads() == 5);
    set_num_threads(100000);
    CHECK(num_threads() == 256);
    set_num_threads(0);
    CHECK(num_threads() == standard);
}

TEST_CASE("threads: many callers at once", "[runtime]") {
    // No recording here: the variant writes a function of its arguments.
    Problem p = sdpa(1, 1, 4, 4);
    polyhead_variant variant{};
    variant.name = "adds";
    variant.abi = POLYHEAD_ABI_VERSION;
    variant.entry = [](void **argv) {
        const auto *query = static_cast<const runtime::KernelBuffer *>(argv[1]);
        const auto *out = static_cast<const runtime::KernelBuffer *>(argv[5]);
        for (int i = 0; i < 4; ++i) {
            reinterpret_cast<float *>(out->host)[i] = reinterpret_cast<const float *>(query->host)[i] + *static_cast<float *>(argv[4]);
        }
        return 0;
    };
    const Kernel kernel({POLYHEAD_SIZES, p, "adds", &variant, nullptr, 1, 0, 0, 0});
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            float query[4] = {}, key[4] = {}, out[4];
            SdpaArgs args;
            args.query = view(query, {1, 1, 1, 4});
            args.key = args.value = view(key, {1, 1, 1, 4});
            args.out = view(out, {1, 1, 1, 4});
            for (int i = 0; i < 2000; ++i) {
                query[3] = static_cast<float>(i);
                args.softmax_scale = static_cast<float>(t);
                if (!kernel.run(args).ok() || out[3] != static_cast<float>(i + t)) {
                    ++wrong;
                }
                if (i % 500 == 0) {
                    polyhead_limit_cpu_features(~UINT64_C(0));
                }
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    CHECK(wrong == 0);
}

TEST_CASE("threads: a change of the number waits for no call", "[runtime]") {
    std::atomic<bool> end{false};
    std::atomic<int> wrong{0}, calls{0};
    set_num_threads(4);
    std::vector<std::thread> callers;
    for (int i = 0; i < 16; ++i) {
        callers.emplace_back([&] {
            LoopCall call(nested_loops);
            while (!end) {
                wrong += call.run().code != POLYHEAD_OK || !right(call);
                ++calls;
            }
        });
    }
    while (calls < 16) {
        std::this_thread::yield();
    }
    double slowest = 0;
    for (int i = 0; i < 50; ++i) {
        const auto before = std::chrono::steady_clock::now();
        set_num_threads(1 + i % 5);
        slowest = std::max(slowest, std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count());
    }
    end = true;
    for (std::thread &caller : callers) {
        caller.join();
    }
    CHECK(slowest < 1.0);
    CHECK(wrong == 0);
    set_num_threads(0);
}

TEST_CASE("threads: every iteration runs once", "[runtime]") {
    for (const int threads : {1, 2, 3, 7, 64, 65, 256}) {
        set_num_threads(threads);
        for (const int iterations : {1, 2, 3, 63, 64, 65, 1000}) {
            for (const int slow : {-1, 0, iterations - 1}) { // one iteration that takes longer, so that others take over its thread's share
                std::vector<std::atomic<int>> runs(static_cast<size_t>(iterations));
                const int first = -5;
                const int result = parallel(
                    nullptr, iterations,
                    [&](int i) {
                        if (i == slow) {
                            std::this_thread::sleep_for(std::chrono::milliseconds(1));
                        }
                        return ++runs[static_cast<size_t>(i - first)], 0;
                    },
                    first);
                INFO(threads << " threads, " << iterations << " iterations, " << slow << " is slow");
                CHECK(result == 0);
                CHECK(std::all_of(runs.begin(), runs.end(), [](const std::atomic<int> &n) { return n == 1; }));
            }
        }
    }
    set_num_threads(0);
}

TEST_CASE("threads: an error ends a loop and is its result, inner loops' too", "[runtime]") {
    for (const int threads : {1, 2, 4}) {
        set_num_threads(threads);
        std::atomic<int> done{0};
        const auto inner = [&](void *context, int i) {
            return parallel(context, 8, [&, i](int j) { return ++done, i == 3 && j == 5 ? -77 : 0; });
        };
        LoopCall call([&](void *context, float *) { return parallel(context, 1000, [&](int i) { return inner(context, i); }); });
        const polyhead_status status = call.run();
        CHECK(status.code == POLYHEAD_INTERNAL);
        CHECK(std::string(status.message) == "kernel fake: error -77 without a text");
        if (threads == 1) {
            CHECK(done == 3 * 8 + 6);
        }
        CHECK(parallel(nullptr, 0, [](int) { return 1; }) == 0);
    }
    set_num_threads(0);
}

TEST_CASE("threads: a smaller number is obeyed after a larger one", "[runtime]") {
    for (const int threads : {4, 1, 3, 2, 1}) {
        polyhead_set_num_threads(threads);
        const size_t seen = threads_of_a_loop();
        CHECK(seen >= 1);
        CHECK(seen <= size_t(threads));
    }
    polyhead_set_num_threads(0);
}
