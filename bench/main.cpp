// polyhead_bench: every kernel of the table, checked and then timed, as % of the peak measured beside it.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <benchmark/benchmark.h>
#include <kernel_table.h>

#include "../instruments/roof/roof.h"
#include "capacity.h"
#include "decode.h"
#include "latent.h"
#include "pages.h"
#include "ragged.h"
#include "storage.h"
#include "workload.h"

namespace {

struct Options {
    std::string json, filter;
    int threads = 0, rounds = 7;
    bool capacity = false, decode = false, latent = false, storage = false, pages = false, ragged = false;
    std::vector<char *> rest; // flags of Google Benchmark
};

// What is kept between the rounds of one call, whatever the threads; the next call replaces it, so that only one holds memory.
struct Current {
    const polyhead::Kernel *kernel = nullptr;
    std::string name, error;
    std::unique_ptr<bench::Workload> workload;
    std::unique_ptr<roof::Workers> workers;
    double read_gbs = 0;
};

void prepare(Current *current, const std::string &name, const polyhead::Kernel &kernel, const bench::Shape &shape, int threads) {
    polyhead::set_num_threads(threads);
    if (!current->workers || current->workers->threads() != threads) {
        current->workers = std::make_unique<roof::Workers>(threads);
        current->read_gbs = roof::read_gbs(*current->workers);
    }
    if (current->name == name)
        return;
    current->name = name;
    current->workload.reset();
    current->workload = std::make_unique<bench::Workload>(kernel, shape);
    current->error = current->workload->check();
}

// One round of one case: Google Benchmark repeats it and forms the statistics.
void round_of(benchmark::State &state, const std::string &name, const polyhead::Kernel &kernel, const bench::Shape &shape, int threads) {
    static Current current;
    prepare(&current, name, kernel, shape, threads);
    if (!current.error.empty()) {
        state.SkipWithError(current.error.c_str());
        return;
    }
    bench::Workload &workload = *current.workload;
    for (auto _ : state) {
        const roof::Round round =
            roof::measure_round(*current.workers, {[&] { (void)workload.run(); }}, 0.02, 5, roof::peak_of(kernel.problem.dtype));
        const double gflops = workload.flops() / round.seconds[0] / 1e9;
        state.SetIterationTime(round.seconds[0]);
        state.counters["GFLOP/s"] = gflops;
        state.counters["% of peak"] = 100 * gflops / round.peak_gflops;
        state.counters["GB/s"] = workload.bytes() / round.seconds[0] / 1e9;
        state.counters["peak GFLOP/s"] = round.peak_gflops;
        state.counters["read GB/s"] = current.read_gbs;
        state.counters["others busy"] = round.others_busy;
    }
}

void add_cases(const Options &options) {
    std::vector<int> threads = {options.threads};
    if (options.threads == 0)
        threads = polyhead::num_threads() > 1 ? std::vector<int>{1, polyhead::num_threads()} : std::vector<int>{1};
    for (size_t i = 0; i < kernel_table_count; i++) {
        const polyhead::Kernel &kernel = *kernel_table[i];
        for (const bench::Shape &shape : bench::shapes_of(kernel.problem))
            for (int count : threads) {
                const std::string call = std::string(kernel.name) + "/" + bench::to_string(kernel.problem, shape);
                const std::string name = call + "/threads:" + std::to_string(count);
                auto *added = benchmark::RegisterBenchmark(
                    name.c_str(), [=, &kernel](benchmark::State &state) { round_of(state, call, kernel, shape, count); });
                added->UseManualTime()
                    ->Iterations(1)
                    ->Repetitions(options.rounds)
                    ->ReportAggregatesOnly(true)
                    ->Unit(benchmark::kMillisecond);
                added->ComputeStatistics("iqr", [](const std::vector<double> &values) { return roof::spread(values).iqr(); });
            }
    }
}

// What SkipWithError left: Google Benchmark renamed the members in 1.8.
template <class Run> auto skip_text(const Run &run, int) -> decltype(run.error_message) {
    return run.error_occurred ? run.error_message : "";
}
template <class Run> auto skip_text(const Run &run, long) -> decltype(run.skip_message) {
    return run.skipped ? run.skip_message : "";
}

// One line per case: Google Benchmark's own console prints five.
class LineReporter : public benchmark::ConsoleReporter {
public:
    bool ReportContext(const Context &context) override {
        PrintBasicContext(&GetErrorStream(), context);
        std::printf("%% of peak: median and interquartile range of the rounds, each against the peak measured in it: FMA, for bf16 dot "
                    "products of pairs where the machine has them\n\n");
        std::printf("%-52s %10s %9s %9s %14s %12s %10s %12s\n", "case", "ms", "GFLOP/s", "GB/s", "% of peak", "peak GFLOP/s", "read GB/s",
                    "others busy");
        return true;
    }

    void ReportRuns(const std::vector<Run> &runs) override {
        const Run *median = nullptr, *iqr = nullptr;
        for (const Run &run : runs) {
            const std::string error = skip_text(run, 0);
            if (!error.empty())
                std::printf("%-52s ERROR: %s\n", case_name(run).c_str(), error.c_str());
            if (run.aggregate_name == "median")
                median = &run;
            if (run.aggregate_name == "iqr")
                iqr = &run;
        }
        if (!median || !iqr)
            return;
        auto counter = [&](const char *name) { return median->counters.at(name).value; };
        std::printf("%-52s %10.4f %9.1f %9.1f %7.1f (%4.1f) %12.1f %10.1f %12.2f\n", case_name(*median).c_str(),
                    median->GetAdjustedRealTime(), counter("GFLOP/s"), counter("GB/s"), counter("% of peak"),
                    iqr->counters.at("% of peak").value, counter("peak GFLOP/s"), counter("read GB/s"), counter("others busy"));
        std::fflush(stdout);
    }

private:
    static std::string case_name(const Run &run) { return run.run_name.function_name; }
};

int run(Options &options, char *program) {
    const int threads = options.threads ? options.threads : polyhead::num_threads();
    if (options.capacity)
        return bench::print_capacities(threads, options.rounds);
    if (options.latent)
        return bench::print_latent(threads, options.rounds);
    if (options.decode)
        return bench::print_decode(threads, options.rounds);
    if (options.pages)
        return bench::print_pages(threads, options.rounds);
    if (options.ragged)
        return bench::print_ragged(threads, options.rounds);
    if (options.storage)
        return bench::print_storage(threads, options.rounds);
    std::vector<std::string> flags;
    if (!options.json.empty())
        flags = {"--benchmark_out=" + options.json, "--benchmark_out_format=json"};
    if (!options.filter.empty())
        flags.push_back("--benchmark_filter=" + options.filter);
    std::vector<char *> arguments = {program};
    for (std::string &flag : flags)
        arguments.push_back(flag.data());
    arguments.insert(arguments.end(), options.rest.begin(), options.rest.end());
    int count = static_cast<int>(arguments.size());
    benchmark::Initialize(&count, arguments.data());
    if (benchmark::ReportUnrecognizedArguments(count, arguments.data()))
        return 1;
    benchmark::AddCustomContext("fma_peak", roof::peak_name());
    benchmark::AddCustomContext("polyhead", polyhead_version());
    add_cases(options);
    LineReporter reporter;
    benchmark::RunSpecifiedBenchmarks(&reporter);
    benchmark::Shutdown();
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    Options options;
    CLI::App app("Times every kernel of the table; flags of Google Benchmark (--benchmark_...) are passed on.");
    app.add_option("--json", options.json, "also write the results to this file");
    app.add_option("--filter", options.filter, "only cases whose names match this regular expression");
    app.add_option("--threads", options.threads, "threads (default: 1, and all)")->check(CLI::Range(1, 1024));
    app.add_option("--rounds", options.rounds, "rounds per case; median and interquartile range are printed")->check(CLI::Range(2, 1000));
    app.add_flag("--capacity", options.capacity, "print what the capacity of a cache costs a decoding step instead");
    app.add_flag("--latent", options.latent, "print what value_in_key saves in a decoding step of latent attention instead");
    app.add_flag("--decode", options.decode, "print how fast a decoding step reads its cache, compared with a plain read, instead");
    app.add_flag("--pages", options.pages, "print what pages cost a decoding step, compared with a contiguous cache, instead");
    app.add_flag("--ragged", options.ragged, "print how fast packed tokens are, compared with equal lengths, instead");
    app.add_flag("--storage", options.storage, "print how fast kernels of bf16 and f16 are beside those of f32 instead");
    app.allow_extras();
    CLI11_PARSE(app, argc, argv);
    std::vector<std::string> rest = app.remaining();
    for (std::string &flag : rest)
        options.rest.push_back(flag.data());
    return run(options, argv[0]);
}
