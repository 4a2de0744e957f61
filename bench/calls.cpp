// What a call costs beside its kernel, and what the threads of another pool cost it.
#include "commands.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "../instruments/calls/compiled_kernel.h"
#include "../instruments/calls/spinning_pool.h"
#include "../instruments/roof/roof.h"
#include "workload.h"

namespace bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double most_planned = 2.7, least_shared = 0.95;

template <class Call> double seconds_of(const Call &call, int times) {
    const auto start = Clock::now();
    for (int i = 0; i < times; i++)
        call();
    return std::chrono::duration<double>(Clock::now() - start).count() / times;
}

// The shortest of several: what is looked for is the cost of instructions.
template <class Call> double least_seconds(const Call &call) {
    double least = 1;
    for (int i = 0; i < 8; i++)
        least = std::min(least, seconds_of(call, 2000));
    return least;
}

// The entry of a variant, timed inside of a call, with the arguments and the memory that the call has made ready.
struct TimedEntry {
    static int entry(void **argv) {
        int result = 0;
        seconds = least_seconds([&] { result |= real(argv); });
        return result;
    }
    static inline int (*real)(void **) = nullptr;
    static inline double seconds = 0;
};

polyhead::Problem heads_of_64(int heads) {
    polyhead::Problem p = polyhead_problem_of(POLYHEAD_SDPA);
    p.num_heads = p.num_kv_heads = heads;
    p.head_dim = p.head_dim_v = 64;
    return p;
}

// So many heads of 64, compiled, with the tensors of one call.
class Case {
public:
    Case(int heads, const Lengths &shape) : compiled_(heads_of_64(heads), {"host", "", "calls", "", false}) {
        if (compiled_.error().empty())
            workload_.emplace(compiled_.kernel(), shape);
    }
    // False after the sentence of what failed.
    bool ready() const {
        const std::string error = workload_ ? workload_->check() : compiled_.error();
        if (!error.empty())
            std::printf("%s\n", error.c_str());
        return error.empty();
    }
    const polyhead::Kernel &kernel() const { return compiled_.kernel(); }
    const polyhead_args &args() const { return workload_->args(); }

private:
    const polyhead::test::CompiledKernel compiled_;
    std::optional<Workload> workload_;
};

// 128-byte aligned memory for one call.
struct Scratch {
    std::vector<char> memory;
    void give(polyhead_args *args, int64_t bytes) {
        memory.resize(static_cast<size_t>(bytes) + 128);
        args->scratch = memory.data() + (128 - reinterpret_cast<uintptr_t>(memory.data()) % 128) % 128;
        args->scratch_bytes = static_cast<size_t>(bytes);
    }
};

// One head, one query, four keys: a call, one with a plan, one with a plan and memory of the caller, / the kernel alone.
int run_tiny(int rounds) {
    const Case measured(1, {1, 1, 4, 0});
    if (!measured.ready())
        return 1;
    const polyhead::Kernel &kernel = measured.kernel();
    polyhead::set_num_threads(1);
    polyhead_args plain = measured.args(), planned = plain, sealed;
    polyhead::Plan plan;
    (void)kernel.plan(plain, &plan);
    planned.plan = plan.raw();
    sealed = planned;
    const polyhead_executor alone = polyhead_executor_of(1, nullptr, nullptr);
    sealed.executor = &alone;
    Scratch scratch;
    scratch.give(&sealed, kernel.scratch_bytes(sealed));

    polyhead_variant variant = kernel.variants[0];
    TimedEntry::real = variant.entry;
    variant.entry = TimedEntry::entry;
    polyhead_kernel timed = kernel;
    timed.variants = &variant;
    timed.num_variants = 1;
    std::vector<double> call, with_plan, with_both, alone_ns;
    for (int i = 0; i < rounds; i++) {
        (void)polyhead_run(&timed, &plain);
        const double entry = TimedEntry::seconds;
        alone_ns.push_back(1e9 * entry);
        call.push_back(least_seconds([&] { (void)kernel.run(plain); }) / entry);
        with_plan.push_back(least_seconds([&] { (void)kernel.run(planned); }) / entry);
        with_both.push_back(least_seconds([&] { (void)kernel.run(sealed); }) / entry);
    }
    const auto print = [&](const char *what, const std::vector<double> &ratios) {
        const roof::Spread s = roof::spread(ratios);
        std::printf("%-44s  %6.2f (%.2f)\n", what, s.median, s.iqr());
    };
    std::printf("1 head of 64, 1 query, 4 keys, 1 thread; time / time of the kernel with its arguments ready (%.0f ns): medians\n"
                "(interquartile range) of %d rounds\n",
                roof::spread(alone_ns).median, rounds);
    print("a call", call);
    print("a call with a plan", with_plan);
    print("with a plan, an executor of width 1, scratch", with_both);
    const bool within = roof::spread(with_plan).median <= most_planned;
    std::printf("a call with a plan: at most %.1f%s\n", most_planned, within ? "" : "  ABOVE");
    return within ? 0 : 1;
}

// The same call alone, after parallel work of another pool by threads of its own, and by those of the other pool.
int run_beside(int threads, int rounds) {
    const Case measured(12, {1, 256, 256, 0});
    if (!measured.ready())
        return 1;
    const polyhead::Kernel &kernel = measured.kernel();
    polyhead::set_num_threads(threads);
    const polyhead_args own = measured.args();
    std::vector<double> beside, on_it, milliseconds;
    for (int i = 0; i < rounds; i++) {
        const auto timed = [&](const auto &before, const polyhead_args &args) {
            std::vector<double> times;
            for (int n = 0; n < 41; n++) {
                before();
                times.push_back(seconds_of([&] { (void)kernel.run(args); }, 1));
            }
            return roof::spread(times).median;
        };
        const double alone = timed([] {}, own);
        double by_own = 0, by_executor = 0;
        {
            polyhead::test::SpinningPool pool(threads, polyhead::test::Idle::keeps_core);
            std::vector<float> data(1 << 16, 1.0f);
            const auto work = [&] {
                pool.parallel_for(64, [&](int task) {
                    for (int k = 0; k < 1024; k++)
                        data[static_cast<size_t>(task) * 1024 + static_cast<size_t>(k)] *= 1.0001f;
                });
            };
            polyhead_args shared = own;
            shared.executor = pool.raw();
            by_own = timed(work, own);
            by_executor = timed(work, shared);
        }
        milliseconds.push_back(1e3 * alone);
        beside.push_back(alone / by_own);
        on_it.push_back(alone / by_executor);
    }
    const roof::Spread s = roof::spread(on_it), own_threads = roof::spread(beside);
    const bool within = s.median >= least_shared;
    std::printf("\n12 heads of 64, 256 queries and keys, %d threads, right after parallel work of a pool whose threads never sleep;\n"
                "time alone (%.2f ms) / time: medians (interquartile range) of %d rounds\n",
                threads, roof::spread(milliseconds).median, rounds);
    std::printf("%-44s  %6.2f (%.2f)\n", "by threads of its own", own_threads.median, own_threads.iqr());
    std::printf("%-44s  %6.2f (%.2f)  at least %.2f%s\n", "by the other pool, as an executor", s.median, s.iqr(), least_shared,
                within ? "" : "  BELOW");
    return within ? 0 : 1;
}

} // namespace

int run_calls(const Options &options) {
    const int tiny = run_tiny(options.rounds), beside = run_beside(most_threads(options), options.rounds);
    polyhead::set_num_threads(0);
    return tiny || beside ? 1 : 0;
}

} // namespace bench
