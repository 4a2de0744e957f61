// The table of promised speeds: % of the peak, growth with threads, free lengths against fixed ones.
#include <cstdio>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "../instruments/calls/compiled_kernel.h"
#include "../instruments/roof/roof.h"
#include "commands.h"
#include "shapes.h"
#include "workload.h"

namespace {

using bench::SpeedLine;

constexpr double min_growth = 0.96, max_free_over_fixed = 1.03;

// The kernels of a line, with free lengths and with those of its shape, and the tensors of both.
struct Compiled {
    std::string error;
    std::vector<std::unique_ptr<polyhead::test::CompiledKernel>> kernels;
    std::unique_ptr<bench::Workload> workload;

    Compiled(const SpeedLine &line, bool records) {
        polyhead::Problem fixed = line.problem;
        fixed.seq_len_q = static_cast<int32_t>(line.shape.seq_len_q);
        fixed.seq_len_kv = static_cast<int32_t>(line.shape.seq_len_kv);
        for (const polyhead::Problem &problem : {line.problem, fixed}) {
            kernels.push_back(std::make_unique<polyhead::test::CompiledKernel>(
                problem, polyhead::load::CompiledKernelOptions{"host", "", "ratio", "", records}));
            error = kernels.back()->error();
            if (!error.empty())
                return;
            auto checked = std::make_unique<bench::Workload>(kernels.back()->kernel(), line.shape);
            error = checked->check();
            if (!error.empty())
                return;
            if (!workload)
                workload = std::move(checked);
        }
    }
};

// What one line gave on one number of threads.
struct Measured {
    std::vector<double> free_percent, fixed_percent, free_over_fixed, peak, others;
};

// A round in which other programs were busy is measured again, up to twice; the quietest one counts.
roof::Round quiet_round(roof::Workers &workers, const std::vector<std::function<void()>> &calls, roof::Peak peak) {
    roof::Round best = roof::measure_round(workers, calls, 0.05, 5, peak, roof::Calls::repeated);
    for (int i = 0; i < 2 && best.others_busy > 0.1; i++) {
        roof::Round round = roof::measure_round(workers, calls, 0.05, 5, peak, roof::Calls::repeated);
        if (round.others_busy < best.others_busy)
            best = round;
    }
    return best;
}

Measured measure(const SpeedLine &line, const Compiled &compiled, int threads, int rounds) {
    Measured measured;
    polyhead::set_num_threads(threads);
    std::vector<std::function<void()>> calls; // free, fixed
    for (const auto &kernel : compiled.kernels)
        calls.push_back([&] { (void)compiled.workload->run(kernel->kernel()); }); // checked; it cannot be refused later
    roof::Workers workers(threads);
    const double flops = compiled.workload->flops() / 1e9;
    for (int i = 0; i < rounds; i++) {
        const roof::Round round = quiet_round(workers, calls, roof::peak_of(line.problem.dtype));
        measured.peak.push_back(round.peak_gflops);
        measured.others.push_back(round.others_busy);
        measured.free_percent.push_back(100 * flops / round.seconds[0] / round.peak_gflops);
        measured.fixed_percent.push_back(100 * flops / round.seconds[1] / round.peak_gflops);
        measured.free_over_fixed.push_back(round.seconds[0] / round.seconds[1]);
    }
    return measured;
}

void print_percent(const std::vector<double> &percents) {
    const roof::Spread s = roof::spread(percents);
    std::printf("  %6.1f (%4.1f)", s.median, s.iqr());
}

} // namespace

int bench::run_ratio(const Options &options) {
    const std::regex wanted(options.filter);
    const int threads = most_threads(options);
    int broken = 0;
    std::printf("%% of the peak (%s; bf16: %s), median (interquartile range) of %d rounds, the peak measured in each of them%s\n",
                roof::peak_name(), roof::peak_name(roof::Peak::bf16_pairs), options.rounds,
                options.no_records ? "; no tuning records" : "");
    std::printf(
        "%-28s  floor  free, 1 thr.   fixed, 1 thr.  free, %d thr.   fixed, %d thr.  growth  free/fixed time  peak GFLOP/s  others busy\n",
        "", threads, threads);
    double before = 0; // % of the line before
    for (const SpeedLine &line : bench::speed_lines()) {
        if (!std::regex_search(line.name, wanted))
            continue;
        const double floor = line.of_line_before > 0 ? line.of_line_before * before : line.floor();
        if (line.problem.dtype == POLYHEAD_BF16 && roof::peak_of(POLYHEAD_BF16) == roof::Peak::fma) {
            std::printf("%-28s  not measured: this machine has no dot products of bf16 pairs\n", line.name);
            continue;
        }
        const Compiled compiled(line, !options.no_records);
        if (!compiled.error.empty()) {
            std::printf("%-28s  %5.0f  %s\n", line.name, floor, compiled.error.c_str());
            broken++;
            continue;
        }
        const Measured one = measure(line, compiled, 1, options.rounds), many = measure(line, compiled, threads, options.rounds);
        const roof::Spread percent = roof::spread(one.free_percent);
        const double growth = roof::spread(many.free_percent).median / percent.median;
        const roof::Spread free_over_fixed = roof::spread(one.free_over_fixed);
        before = percent.median;
        std::printf("%-28s  %5.1f", line.name, floor);
        for (const auto *percents : {&one.free_percent, &one.fixed_percent, &many.free_percent, &many.fixed_percent})
            print_percent(*percents);
        std::printf("  %6.3f  %7.3f (%.3f)      %4.0f, %4.0f   %.2f, %.2f", growth, free_over_fixed.median, free_over_fixed.iqr(),
                    roof::spread(one.peak).median, roof::spread(many.peak).median, roof::spread(one.others).median,
                    roof::spread(many.others).median);
        const bool slow = percent.median < floor - percent.iqr() / 2;
        const bool flat = growth < min_growth;
        const bool dear = max_free_over_fixed < free_over_fixed.median;
        std::printf("%s%s%s%s\n", slow ? "  BELOW FLOOR" : "", flat ? "  GROWTH" : "", dear ? "  FREE LENGTHS" : "",
                    slow || flat || dear ? "" : "  ok");
        std::fflush(stdout);
        broken += slow || flat || dear;
    }
    std::printf("others busy: cores that other programs used meanwhile, median on 1 and %d threads; above 0.1 repeat on a quiet machine\n",
                threads);
    std::printf("floor: reached when the median is above it less half of the interquartile range\n");
    std::printf("growth: %% on %d threads over %% on 1, at least %.2f; free/fixed at most %.2f\n", threads, min_growth,
                max_free_over_fixed);
    return broken ? 1 : 0;
}
