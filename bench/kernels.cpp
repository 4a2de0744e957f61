// Every kernel of the table, checked and then timed, as % of the peak measured beside it.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "../instruments/roof/roof.h"
#include "commands.h"
#include "table.h"
#include "workload.h"

namespace {

// What is kept between the rounds of one call, whatever the threads; the next call replaces it, so that only one holds memory.
struct Current {
    std::string name, error;
    std::unique_ptr<bench::Workload> workload;
    std::unique_ptr<roof::Workers> workers;
    double read_gbs = 0;
};

void prepare(Current *current, const std::string &name, const std::string &kernel, const bench::Lengths &shape, int threads) {
    polyhead::set_num_threads(threads);
    if (!current->workers || current->workers->threads() != threads) {
        current->workers = std::make_unique<roof::Workers>(threads);
        current->read_gbs = roof::read_gbs(*current->workers);
    }
    if (current->name == name)
        return;
    current->name = name;
    current->workload.reset();
    if (const polyhead::Kernel *found = bench::kernel_named(kernel, &current->error)) {
        current->workload = std::make_unique<bench::Workload>(*found, shape);
        current->error = current->workload->check();
    }
}

// One round of one case: Google Benchmark repeats it and forms the statistics.
void round_of(benchmark::State &state, const std::string &name, const std::string &kernel, const bench::Lengths &shape, int threads) {
    static Current current;
    prepare(&current, name, kernel, shape, threads);
    if (!current.error.empty()) {
        state.SkipWithError(current.error.c_str());
        return;
    }
    bench::Workload &workload = *current.workload;
    for (auto _ : state) {
        const roof::Round round = roof::measure_round(*current.workers, {[&] { (void)workload.run(); }}, 0.02, 5,
                                                      roof::peak_of(bench::table_problem(kernel).dtype));
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

void add_cases(const bench::Options &options) {
    const std::vector<int> threads =
        options.threads > 0 ? std::vector<int>{options.threads} : bench::thread_counts(polyhead::num_threads());
    for (const std::string &kernel : bench::table_names()) {
        const polyhead::Problem &problem = bench::table_problem(kernel);
        for (const bench::Lengths &shape : bench::shapes_of(problem))
            for (int count : threads) {
                const std::string call = kernel + "/" + bench::to_string(problem, shape);
                const std::string name = call + "/threads:" + std::to_string(count);
                auto *added = benchmark::RegisterBenchmark(name.c_str(),
                                                           [=](benchmark::State &state) { round_of(state, call, kernel, shape, count); });
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

} // namespace

int bench::run_kernels(const Options &options) {
    std::vector<std::string> flags = {"polyhead_bench"};
    if (!options.json.empty()) {
        flags.push_back("--benchmark_out=" + options.json);
        flags.push_back("--benchmark_out_format=json");
    }
    if (!options.filter.empty())
        flags.push_back("--benchmark_filter=" + options.filter);
    flags.insert(flags.end(), options.google_benchmark.begin(), options.google_benchmark.end());
    std::vector<char *> arguments;
    for (std::string &flag : flags)
        arguments.push_back(flag.data());
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
