// Every CPU variant of the table in processes that are not well: forked children, odd floating-point states, a system that refuses.
#include "kernel_table.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <malloc.h>
#include <optional>
#include <string>
#include <vector>

#include "child_process.h"
#include "counted_allocations.h"
#include "executors.h"
#include "failing_system.h"
#include "floating_point_states.h"
#include "instruments/calls/not_run.h"
#include "instruments/calls/problems.h"
#include "instruments/calls/spinning_pool.h"
#include "instruments/calls/subject.h"
#include "instruments/reference/half.h"
#include "scratch_memory.h"
#include "sealed.h"
#include "small_stack.h"
#include "support/catch.h"
#include "support/environment.h"
#include "support/shapes.h"

using namespace polyhead;
using namespace polyhead::test;

extern "C" void halide_shutdown_thread_pool() __asm__("polyhead_halide_shutdown_thread_pool");

namespace {

using Bits = std::vector<std::vector<float>>;

Shape small_shape(const polyhead_kernel &forced) {
    int64_t seq_len_q = 37;
    if (!serves(forced, seq_len_q)) { // decodes, or a tuning record gives it a range of its own
        seq_len_q = std::max(forced.variants[0].min_seq_len_q, std::min(forced.variants[0].max_seq_len_q, 3));
    }
    Shape shape = plain_shape(call_problem(forced), 2, seq_len_q, 75, 5);
    shape.seq_len_q = serves(forced, shape.seq_len_q) ? shape.seq_len_q : seq_len_q; // POLYHEAD_TEST_BUDGET may ask for fewer
    return shape;
}

enum class Begin { with_a_run, without };

// A call of one variant with small tensors, and its bits with one thread.
struct SmallCall {
    SmallCall(const polyhead_kernel &forced, Begin begin)
        : kernel(forced), subject(forced, 7), inputs(call_problem(forced), small_shape(forced)) {
        if (begin == Begin::with_a_run) {
            set_num_threads(1);
            status = run();
            expected = bits();
        }
    }
    polyhead_status run() {
        inputs.gaps_untouched(); // refills the outputs
        return subject.subject().run(inputs.args());
    }
    Bits bits() const { return read_outputs(inputs.args()); }
    bool right() const {
        const Bits now = bits();
        for (size_t i = 0; i < now.size(); ++i) {
            for (size_t j = 0; j < now[i].size(); ++j) {
                if (float_bits(now[i][j]) != float_bits(expected[i][j])) {
                    return false;
                }
            }
        }
        return true;
    }

    const polyhead_kernel &kernel;
    KernelSubject subject;
    Inputs inputs;
    polyhead_status status{};
    Bits expected;
};

// Variants whose fixed lengths make every call a long one are left to --all: the same kernel without the lengths is in the table.
template <typename Check> void for_each_variant(const Check &check, Begin begin = Begin::with_a_run) {
    const double most = test_all() ? 1e10 : 5e8;
    for (const Kernel *kernel : kernel_table) {
        for (const polyhead_kernel &forced : forced_variants(*kernel)) {
            if (multiply_adds(call_problem(forced), small_shape(forced)) > most) {
                continue;
            }
            SmallCall call(forced, begin);
            CAPTURE(kernel->name, forced.variants[0].tiling, call.status.message);
            REQUIRE(call.status.code == POLYHEAD_OK);
            check(call);
        }
    }
    set_num_threads(0);
}

// A request to the system after the other is refused, until a call makes no more.
void sweep(SmallCall &call) {
    bool happened = true;
    for (int n = 1; happened; ++n) {
        REQUIRE(n < 200);
        for (const bool every : {false, true}) {
            CAPTURE(n, every);
            polyhead_status status{};
            afresh(2, [&] {
                const Failing memory(Resource::memory, n, every);
                status = call.run();
                happened = memory.happened();
            });
            if (status.code == POLYHEAD_OK) {
                CHECK(call.right());
            } else {
                CHECK(status.code == POLYHEAD_OUT_OF_MEMORY);
                CHECK(call.inputs.outputs_untouched());
            }
        }
    }
    afresh(3, [&] {
        const Failing creation(Resource::thread, 1, true);
        CHECK(call.run().code == POLYHEAD_OK);
    });
    CHECK(call.right());
}

size_t bytes_in_use() {
    halide_shutdown_thread_pool(); // waits for helpers that are about to end
    const auto now = mallinfo2();
    return now.uordblks + now.hblkhd;
}

} // namespace

TEST_CASE("every CPU variant runs on the stack that the headers promise") {
    for_each_variant([](SmallCall &call) {
        set_num_threads(2);
        // Sanitizers make frames several times larger. The caller has two copies of its arguments.
        const size_t of_call = (sanitized() ? 16 : 1) * promised_stack_bytes, of_caller = (2 * sizeof(polyhead_args) + 4095) / 4096 * 4096;
        run_on_stack(of_call + of_caller, [&] { call.status = call.run(); });
        CHECK(call.status.code == POLYHEAD_OK);
        CHECK(call.right());
    });
    set_num_threads(0);
}

TEST_CASE("process: a forked child computes the same bits, with the parent's number of threads and another") {
    if (!children_may_make_threads) {
        note_not_run("children of several threads", "the sanitizers do not follow a child of several threads");
        return;
    }
    for_each_variant([](SmallCall &call) {
        set_num_threads(3);
        CHECK(call.run().code == POLYHEAD_OK);
        CHECK(in_child(End::at_once, [&] {
                  for (const int threads : {3, 2, 1}) {
                      set_num_threads(threads);
                      if (call.run().code != POLYHEAD_OK || !call.right()) {
                          return threads;
                      }
                  }
                  return 0;
              }) == 0);
    });
}

TEST_CASE("process: equal bits in every floating-point state of the caller") {
    for_each_variant([](SmallCall &call) {
        for (const int threads : {1, 2, 4}) {
            set_num_threads(threads);
            call.run(); // the pool exists before the state changes
            for_each_state([&](unsigned state) {
                CAPTURE(threads, state);
                polyhead_status status{};
                unsigned left = 0;
                call.inputs.gaps_untouched();
                {
                    const ArithmeticState set(state);
                    status = call.subject.subject().run(call.inputs.args());
                    left = set.found();
                }
                CHECK(status.code == POLYHEAD_OK);
                CHECK(left == state);
                CHECK(call.right());
            });
        }
    });
}

TEST_CASE("process: every request to the system of every variant is refused once: the right status, out untouched, nothing lost") {
    for_each_variant([](SmallCall &call) {
        sweep(call);
        const size_t before = bytes_in_use();
        sweep(call);
        constexpr size_t noise = 64 << 10; // of the test itself
        CHECK(bytes_in_use() <= before + noise);
    });
}

namespace {

// A call in scratch memory of exactly the bytes that it says.
struct SealedCall {
    SealedCall(SmallCall &call, const polyhead_executor *executor) : of(call), args(call.subject.prepared(call.inputs.args())) {
        args.executor = executor;
        polyhead_status status;
        memory.emplace(polyhead_scratch_bytes(&call.kernel, &args, &status));
        args.scratch = memory->get();
        args.scratch_bytes = memory->bytes();
    }
    polyhead_status run() const { return polyhead_run(&of.kernel, &args); }

    SmallCall &of;
    polyhead_args args;
    std::optional<ScratchMemory> memory;
};

} // namespace

TEST_CASE("process: with an executor and scratch memory every variant asks nothing of the system, at its first call and later") {
    if (!can_seal) {
        note_not_run("calls that ask nothing of the system", "sanitizers ask for memory of their own");
        return;
    }
    enum Seen { sealed_calls_ran, refused, allocated, no_filter };
    for_each_variant(
        [](SmallCall &call) {
            const int code = in_child(End::at_once, [&] {
                SpinningPool pool(2);
                const SealedCall sealed(call, pool.raw());
                call.inputs.gaps_untouched();
                if (!seal()) {
                    _exit(no_filter);
                }
                const long before = allocations_so_far();
                bool ran = true;
                for (int n = 0; n < 2; ++n) {
                    ran = sealed.run().code == POLYHEAD_OK && ran;
                }
                const long after = allocations_so_far();
                _exit(!ran ? refused : after != before ? allocated : sealed_calls_ran); // the threads of the pool cannot end any more
                return 0;
            });
            CHECK(code == sealed_calls_ran);
        },
        Begin::without);
}

namespace {

// Returns when the process has no more threads than these; on a busy machine others take a while to end.
void wait_for_threads(long most) {
    for (int waits = 0; waits < 5000; ++waits) {
        const auto all = std::filesystem::directory_iterator("/proc/self/task");
        if (std::distance(begin(all), end(all)) <= most) {
            return;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    FAIL("threads of an earlier pool do not end");
}

} // namespace

TEST_CASE("process: with threads and memory of the library, a warm call of every variant allocates nothing") {
    if (!can_seal) {
        note_not_run("calls that allocate nothing", "sanitizers allocate for themselves");
        return;
    }
    for_each_variant([](SmallCall &call) {
        for (const int threads : {1, 3}) {
            set_num_threads(threads);
            const polyhead_args args = call.subject.prepared(call.inputs.args());
            call.inputs.gaps_untouched();
            for (int n = 0; n < 2; ++n) {
                CHECK(polyhead_run(&call.kernel, &args).code == POLYHEAD_OK);
            }
            wait_for_threads(threads); // those of a pool before this one end, and free what they had
            const Failing memory(Resource::memory, 1);
            const long before = allocations_so_far();
            const int32_t code = polyhead_run(&call.kernel, &args).code;
            const long after = allocations_so_far();
            CHECK(code == POLYHEAD_OK);
            CHECK(after == before);
            CHECK(!memory.happened());
        }
    });
}

TEST_CASE("process: a seal and a count of allocations find what they are for") {
    if (!can_seal) {
        return;
    }
    const long before = allocations_so_far();
    char *const volatile block = new char[7];
    delete[] block;
    CHECK(allocations_so_far() >= before + 2);
    CHECK(in_child(End::at_once, [] { return seal() ? getppid() > 0 ? 1 : 2 : 3; }) == unsealed_code);
}

TEST_CASE("process: the same bits with a plan") {
    for_each_variant([](SmallCall &call) {
        polyhead_args args = call.subject.prepared(call.inputs.args());
        polyhead_plan *plan = nullptr;
        REQUIRE(polyhead_make_plan(&call.kernel, &args, &plan).code == POLYHEAD_OK);
        args.plan = plan;
        for (const int threads : {1, 3}) {
            set_num_threads(threads);
            call.inputs.gaps_untouched(); // refills the outputs
            const polyhead_status status = polyhead_run(&call.kernel, &args);
            CAPTURE(threads, status.message);
            CHECK(status.code == POLYHEAD_OK);
            CHECK(call.right());
        }
        polyhead_free_plan(plan);
    });
}

TEST_CASE("process: the same bits by executors of any width, in scratch memory of any content") {
    for_each_variant([](SmallCall &call) {
        for (const int width : {1, 3, 8}) {
            const TestExecutor executor(width, width == 3 ? RunTasks(backwards) : RunTasks(on_threads));
            SealedCall sealed(call, executor.raw());
            for (const char content : {'\0', '\xff'}) {
                std::memset(sealed.args.scratch, content, sealed.args.scratch_bytes);
                call.inputs.gaps_untouched(); // refills the outputs
                --sealed.args.scratch_bytes;
                CHECK(sealed.run().code == POLYHEAD_BAD_VALUE);
                CHECK(call.inputs.outputs_untouched());
                ++sealed.args.scratch_bytes;
                const polyhead_status status = sealed.run();
                CAPTURE(width, status.message);
                CHECK(status.code == POLYHEAD_OK);
                CHECK(call.right());
            }
            CHECK(sealed.memory->untouched_behind());
        }
    });
}

TEST_CASE("process: packing gives a status when memory cannot be had") {
    for (const Kernel *kernel : kernel_table) {
        if (kernel->weights_bytes() == 0) {
            continue;
        }
        const KernelSubject subject(*kernel, 7);
        WeightTensors tensors{};
        static_cast<polyhead_weight_tensors &>(tensors) = subject.weights();
        Weights packed;
        {
            const Failing memory(Resource::memory, 1);
            CHECK(kernel->pack(tensors, &packed).code() == POLYHEAD_OUT_OF_MEMORY);
            CHECK(memory.happened());
        }
        CHECK(packed.raw()->data == nullptr);
        CHECK(kernel->pack(tensors, &packed).ok());
    }
}
