// Threads and memory of the caller: what is computed is the same, executors that break their contract are found, and nothing is asked of
// the system.
#include <cfenv>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "../runtime/threads/executor.h"
#include "executors.h"
#include "failing_system.h"
#include "instruments/calls/spinning_pool.h"
#include "runtime_calls.h"
#include "runtime_loops.h"
#include "scratch_memory.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// A call of loops in loops by an executor, in scratch memory of exactly the bytes that it says.
struct SealedCall {
    explicit SealedCall(const polyhead_executor *executor) : call(nested_loops) {
        call.fake.variant.scratch.per_thread = 32 << 10;
        call.args.executor = executor;
        polyhead_status status;
        scratch = std::make_unique<ScratchMemory>(polyhead_scratch_bytes(&call.fake.table, &call.args, &status));
        REQUIRE(std::string(status.message).empty());
        call.args.scratch = scratch->get();
        call.args.scratch_bytes = scratch->bytes();
    }
    LoopCall call;
    std::unique_ptr<ScratchMemory> scratch;
};

// As arithmetic does it: fegetround() may tell of another unit.
bool rounds_up() {
    const volatile float one = 1, little = 0x1p-30f;
    return one + little > one;
}

} // namespace

TEST_CASE("executor: tasks in any order, on any threads", "[runtime]") {
    const RunTasks all[] = {backwards, on_threads, on_another_thread};
    for (const RunTasks &run : all) {
        for (const int width : {1, 2, 3, 8, 64, 256}) {
            CAPTURE(width, &run - all);
            const TestExecutor executor(width, run);
            SealedCall sealed(executor.raw());
            CHECK(sealed.scratch->bytes() == static_cast<size_t>(held_scratch(32 << 10, 32 << 10, width - 1)));
            for (int i = 0; i < 3; ++i) {
                CHECK(std::string(sealed.call.run().message).empty());
                CHECK(right(sealed.call));
            }
            CHECK(sealed.scratch->untouched_behind());
        }
    }
}

TEST_CASE("executor: calls of many threads on one", "[runtime]") {
    const TestExecutor executor(4, on_threads);
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&] {
            SealedCall sealed(executor.raw());
            for (int n = 0; n < 20; ++n) {
                wrong += sealed.call.run().code != POLYHEAD_OK || !right(sealed.call);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    CHECK(wrong == 0);
}

TEST_CASE("executor: width 1 is the thread of the call alone", "[runtime]") {
    const polyhead_executor executor = polyhead_executor_of(1, nullptr, nullptr);
    SealedCall sealed(&executor);
    std::atomic<int> elsewhere{0};
    const auto here = std::this_thread::get_id();
    sealed.call.fake.on_call = [&](FakeKernel &f) {
        f.result = parallel(f.user_context, 64, [&](int) {
            elsewhere += std::this_thread::get_id() != here;
            return 0;
        });
    };
    CHECK(sealed.call.run().code == POLYHEAD_OK);
    CHECK(elsewhere == 0);
}

TEST_CASE("executor: each task has the floating-point state of a call, and brings back what it found", "[runtime]") {
    std::atomic<int> changed{0};
    const TestExecutor executor(4, [&](int tasks, const std::function<void(int)> &run) {
        on_threads(tasks, [&](int i) {
            std::fesetround(FE_UPWARD);
            run(i);
            changed += !rounds_up();
        });
    });
    SealedCall sealed(executor.raw());
    std::atomic<int> other{0};
    sealed.call.fake.on_call = [&](FakeKernel &f) {
        f.result = parallel(f.user_context, 64, [&](int) {
            other += rounds_up();
            return 0;
        });
    };
    CHECK(sealed.call.run().code == POLYHEAD_OK);
    CHECK(other == 0);
    CHECK(changed == 0);
}

TEST_CASE("executor: an error inside of a kernel", "[runtime]") {
    for (const int width : {1, 4}) {
        const TestExecutor executor(width, on_threads);
        SealedCall sealed(executor.raw());
        sealed.call.fake.on_call = [](FakeKernel &f) { f.result = parallel(f.user_context, 64, [](int i) { return i == 40 ? -7 : 0; }); };
        CHECK(std::string(sealed.call.run().message) == "kernel fake: error -7 without a text");
    }
}

TEST_CASE("executor: one that breaks its contract is found, and the outputs are complete", "[runtime]") {
    const struct {
        RunTasks run;
        std::string sentence;
    } all[] = {
        {[](int tasks, const auto &run) {
             backwards(tasks, run);
             run(2);
         },
         "executor: ran task 2 of 4 twice, expected once; the outputs are complete"},
        {[](int tasks, const auto &run) { on_threads(2 * tasks, [&](int i) { run(i % tasks == 1 ? 3 : i % tasks); }); },
         "twice, expected once; the outputs are complete"},
        {[](int tasks, const auto &run) { backwards(tasks - 1, run); },
         "executor: parallel_for returned before task 3 of 4 ran, expected after all; the outputs are complete"},
        {[](int, const auto &) {}, "executor: parallel_for returned before task 0 of 4 ran, expected after all; the outputs are complete"},
        {[](int tasks, const auto &run) { backwards(tasks + 1, run); }, "executor: ran task 4, expected 0 to 3; the outputs are complete"},
        {[](int tasks, const auto &run) {
             run(-1);
             backwards(tasks, run);
         },
         "executor: ran task -1, expected 0 to 3; the outputs are complete"},
        {[](int, const auto &run) {
             run(1);
             throw std::runtime_error("no threads");
         },
         "executor: parallel_for of 4 tasks threw an exception, expected none; the outputs are complete"},
    };
    for (const auto &one : all) {
        const TestExecutor executor(4, one.run);
        SealedCall sealed(executor.raw());
        const polyhead_status status = sealed.call.run();
        CHECK(status.code == POLYHEAD_WRONG_EXECUTOR);
        INFO(status.message);
        CHECK(std::string(status.message).find(one.sentence) != std::string::npos);
        CHECK(right(sealed.call));
    }
}

TEST_CASE("executor: a task after the return of parallel_for does nothing", "[runtime]") {
    std::vector<std::function<void()>> late;
    const TestExecutor executor(4, [&](int tasks, const std::function<void(int)> &run) {
        late.emplace_back([run] { // a copy: what it runs is the task of a loop that is over
            for (int i = -1; i < 6; ++i) {
                run(i);
            }
        });
        for (const auto &task : late) {
            if (&task != &late.back()) {
                task(); // while another loop runs
            }
        }
        backwards(tasks, run);
    });
    for (int n = 0; n < 3; ++n) {
        SealedCall sealed(executor.raw());
        CHECK(std::string(sealed.call.run().message).empty());
        CHECK(right(sealed.call));
        const std::vector<float> out = sealed.call.out;
        sealed.scratch.reset();
        for (const auto &task : late) {
            task();
        }
        CHECK(sealed.call.out == out);
    }
}

TEST_CASE("executor: a task that outlives parallel_for is waited for", "[runtime]") {
    std::thread slow;
    const TestExecutor executor(2, [&](int, const std::function<void(int)> &run) {
        std::atomic<bool> began{false};
        slow = std::thread([&began, run] {
            began = true;
            run(1);
        });
        while (!began) {
            std::this_thread::yield();
        }
        run(0);
    });
    SealedCall sealed(executor.raw());
    sealed.call.fake.on_call = [](FakeKernel &f) {
        auto *const out = static_cast<float *>(f.buffer(4).host);
        f.result = parallel(f.user_context, LoopCall::elements, [out](int i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            out[i] = static_cast<float>(28 * i);
            return 0;
        });
    };
    (void)sealed.call.run(); // ok, or left out where the thread came too late
    CHECK(right(sealed.call));
    slow.join();
}

TEST_CASE("executor: more loops at the same time than there are gates", "[runtime]") {
    struct Depth {
        int left, ran;
        static void parallel_for(void *context, int32_t tasks, void (*run)(void *, int32_t), void *state) {
            auto &self = *static_cast<Depth *>(context);
            if (self.left-- > 0) {
                const polyhead_executor inner = polyhead_executor_of(2, &self, parallel_for);
                runtime::ExecutorFault fault;
                runtime::run_tasks(inner, 2, count, &self.ran, &fault);
                CHECK(!fault.any());
            }
            for (int32_t i = 0; i < tasks; ++i) {
                run(state, i);
            }
        }
        static void count(void *ran, int32_t) { ++*static_cast<int *>(ran); }
    };
    Depth depth{400, 0};
    Depth::parallel_for(&depth, 0, nullptr, nullptr);
    CHECK(depth.ran > 2 * 200); // two tasks of each loop that had a gate
    CHECK(depth.left >= 0);     // the loop without one ran by itself
    depth = {3, 0};
    Depth::parallel_for(&depth, 0, nullptr, nullptr);
    CHECK(depth.ran == 6); // all gates are free again
}

TEST_CASE("executor: what is refused", "[runtime]") {
    SdpaCall call;
    polyhead_executor executor = polyhead_executor_of(4, nullptr, [](void *, int32_t, void (*)(void *, int32_t), void *) {});
    call.args.executor = &executor;
    SECTION("a width of 0") {
        executor.width = 0;
        call.refused(POLYHEAD_BAD_VALUE, "executor: width 0, expected 1 to 256");
    }
    SECTION("a width of 257") {
        executor.width = 257;
        call.refused(POLYHEAD_BAD_VALUE, "executor: width 257, expected 1 to 256");
    }
    SECTION("no function") {
        executor.parallel_for = nullptr;
        call.refused(POLYHEAD_NULL_POINTER, "executor: parallel_for is null, expected a function, because width is 4");
    }
    SECTION("one that was not begun") {
        executor.size = 0;
        call.refused(POLYHEAD_UNSUPPORTED, "executor: polyhead_executor of 0 bytes, expected " + std::to_string(sizeof executor) +
                                               ": begin it with polyhead_executor_of() and compile with the headers of polyhead " +
                                               polyhead_version());
    }
}

TEST_CASE("executor: nothing is asked of the system", "[runtime]") {
    SpinningPool pool(4);
    SealedCall sealed(pool.raw());
    for (int n = 0; n < 2; ++n) {
        const Failing memory(Resource::memory, 1, true), thread(Resource::thread, 1, true), file(Resource::file, 1, true);
        CHECK(std::string(sealed.call.run().message).empty());
        CHECK(!memory.happened());
        CHECK(!thread.happened());
        CHECK(!file.happened());
    }
    CHECK(right(sealed.call));
}

TEST_CASE("executor: explain says who works", "[runtime]") {
    SdpaCall call;
    const TestExecutor executor(7, on_threads);
    call.args.executor = executor.raw();
    const std::string text = call.fake.kernel().explain(call.args);
    CHECK(text.find("executor of width 7\n") != std::string::npos);
    CHECK(text.find("scratch " + std::to_string(held_scratch(0, 0, 6)) + " bytes") != std::string::npos);
}

namespace {

// One sequence is more than half of the work, or none is.
struct RaggedCall {
    explicit RaggedCall(std::vector<int32_t> begins_) : begins(std::move(begins_)) {
        const int64_t total = begins.back();
        query.resize(static_cast<size_t>(total * d));
        out.assign(static_cast<size_t>(total * d), untouched);
        args.query = args.key = args.value = view(query.data(), {1, 1, total, d});
        args.out = view(out.data(), {1, 1, total, d});
        args.cu_seqlens_q = args.cu_seqlens_kv = view(begins.data(), {static_cast<int64_t>(begins.size())});
        fake.variant.scratch.per_thread = 4096;
        fake.on_call = nullptr;
    }
    std::vector<int32_t> begins;
    std::vector<float> query, out;
    FakeKernel fake{sdpa(1, 1, d, d)};
    polyhead_args args = polyhead_args_of(POLYHEAD_SDPA);
};

// Writes how many keys a part has to each of its rows, in a parallel loop, with scratch memory of its tasks; counts the loops that more
// than one thread could have run.
int write_parts(void **argv, std::atomic<int> *shared) {
    void *const context = *static_cast<void **>(argv[0]);
    const auto &query = *static_cast<const runtime::KernelBuffer *>(argv[1]);
    const auto &key = *static_cast<const runtime::KernelBuffer *>(argv[2]);
    const auto &out = *static_cast<const runtime::KernelBuffer *>(argv[5]);
    std::atomic<int> most{0};
    const int rows = query.dim[1].extent;
    const auto first_worker = std::this_thread::get_id();
    std::atomic<bool> others{false};
    const int result = parallel(context, rows, [&](int row) {
        auto *const own = static_cast<float *>(halide_malloc(context, 2048));
        if (!own) {
            return -1;
        }
        std::this_thread::sleep_for(std::chrono::microseconds(200)); // so that all come
        own[500] = static_cast<float>(key.dim[1].extent);
        for (int i = 0; i < out.dim[0].extent; ++i) {
            reinterpret_cast<float *>(out.host)[row * out.dim[1].stride + i] = own[500];
        }
        others = others || std::this_thread::get_id() != first_worker;
        halide_free(context, own);
        return 0;
    });
    *shared += others;
    return result;
}

} // namespace

TEST_CASE("executor: packed tokens", "[runtime]") {
    const struct {
        std::vector<int32_t> begins;
        int together; // sequences that all tasks compute
    } all[] = {{{0, 200, 203, 204, 210}, 1}, {{0, 20, 41, 63, 86, 110}, 0}, {{0, 7}, 1}, {{0, 0, 0}, 0}, {{0, 91, 181, 182}, 2}};
    for (const auto &one : all) {
        for (const int width : {1, 2, 4, 9}) {
            RaggedCall call(one.begins);
            std::atomic<int> shared{0};
            Entry entry([&](void **argv) { return write_parts(argv, &shared); });
            call.fake.variant.entry = entry.function();
            const TestExecutor executor(width, on_threads);
            call.args.executor = executor.raw();
            polyhead_status status;
            const ScratchMemory scratch(polyhead_scratch_bytes(&call.fake.table, &call.args, &status));
            CAPTURE(one.begins, width);
            call.args.scratch = scratch.get();
            call.args.scratch_bytes = scratch.bytes();
            if (scratch.bytes() > 0) {
                --call.args.scratch_bytes;
                CHECK(call.fake.run(call.args).code == POLYHEAD_BAD_VALUE);
                CHECK(call.out == std::vector<float>(call.out.size(), untouched));
                ++call.args.scratch_bytes;
            }
            CHECK(std::string(call.fake.run(call.args).message).empty());
            std::vector<float> expected;
            for (size_t b = 0; b + 1 < one.begins.size(); ++b) {
                const int32_t length = one.begins[b + 1] - one.begins[b];
                expected.insert(expected.end(), static_cast<size_t>(length * d), static_cast<float>(length));
            }
            CHECK(call.out == expected);
            CHECK(scratch.untouched_behind());
            if (width == 4) {
                CHECK(shared == one.together);
            }
        }
    }
}
