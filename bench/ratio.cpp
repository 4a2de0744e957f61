// The table of promised speeds: % of the FMA peak, growth with threads, free lengths against fixed ones.
#include "ratio.h"

#include <cstdio>
#include <memory>

#include "kernels.h"

#include "roof.h"
#include "workload.h"

namespace bench {
namespace {

constexpr double min_growth = 0.96, max_free_over_fixed = 1.03;

// What one line gave on one number of threads; `fixed` stays empty when no kernel with fixed lengths is in the table.
struct Measured {
    std::vector<double> free_percent, fixed_percent, free_over_fixed, peak, others;
};

// A round in which other programs were busy is measured again, up to twice; the quietest one counts.
roof::Round quiet_round(roof::Team &team, const std::vector<std::function<void()>> &calls, roof::Peak peak) {
    roof::Round best = roof::measure_round(team, calls, 0.05, 5, peak);
    for (int i = 0; i < 2 && best.others_busy > 0.1; i++) {
        roof::Round round = roof::measure_round(team, calls, 0.05, 5, peak);
        if (round.others_busy < best.others_busy)
            best = round;
    }
    return best;
}

std::string measure(const SpeedLine &line, int threads, int rounds, Measured *measured) {
    polyhead::set_num_threads(threads);
    std::vector<std::unique_ptr<Workload>> workloads;
    std::vector<std::function<void()>> calls;
    for (bool fixed : {false, true}) {
        const polyhead::Kernel *kernel = kernel_of(line, fixed);
        if (!kernel && !fixed)
            return "no kernel of the table serves it";
        if (!kernel)
            continue;
        workloads.push_back(std::make_unique<Workload>(*kernel, line.shape));
        Workload *workload = workloads.back().get();
        const std::string error = workload->check();
        if (!error.empty())
            return std::string(kernel->name) + ": " + error;
        calls.push_back([workload] { (void)workload->run(); }); // checked above; the same call cannot be refused later
    }
    roof::Team team(threads);
    for (int i = 0; i < rounds; i++) {
        const roof::Round round = quiet_round(team, calls, roof::peak_of(line.problem.dtype));
        const double flops = workloads[0]->flops() / 1e9;
        measured->peak.push_back(round.peak_gflops);
        measured->others.push_back(round.others_busy);
        measured->free_percent.push_back(100 * flops / round.seconds[0] / round.peak_gflops);
        if (calls.size() < 2)
            continue;
        measured->fixed_percent.push_back(100 * flops / round.seconds[1] / round.peak_gflops);
        measured->free_over_fixed.push_back(round.seconds[0] / round.seconds[1]);
    }
    return "";
}

void print_percent(const std::vector<double> &percents) {
    const roof::Spread s = roof::spread(percents);
    if (percents.empty())
        std::printf("  %13s", "-");
    else
        std::printf("  %6.1f (%4.1f)", s.median, s.iqr());
}

} // namespace

int print_ratios(int threads, int rounds) {
    int broken = 0;
    std::printf("%% of the peak (%s; bf16: %s), median (interquartile range) of %d rounds, the peak measured in each of them\n",
                roof::peak_name(), roof::peak_name(roof::Peak::bf16_pairs), rounds);
    std::printf(
        "%-28s  floor  free, 1 thr.   fixed, 1 thr.  free, %d thr.   fixed, %d thr.  growth  free/fixed time  peak GFLOP/s  others busy\n",
        "", threads, threads);
    double before = 0; // % of the line before
    for (const SpeedLine &line : speed_lines()) {
        const double floor = line.of_line_before > 0 ? line.of_line_before * before : line.floor();
        if (line.problem.dtype == POLYHEAD_BF16 && roof::peak_of(POLYHEAD_BF16) == roof::Peak::fma) {
            std::printf("%-28s  not measured: this machine has no dot products of bf16 pairs\n", line.name);
            continue;
        }
        Measured one, many;
        std::string error = measure(line, 1, rounds, &one);
        if (error.empty())
            error = measure(line, threads, rounds, &many);
        if (!error.empty()) {
            std::printf("%-28s  %5.0f  %s\n", line.name, floor, error.c_str());
            broken++;
            continue;
        }
        const roof::Spread percent = roof::spread(one.free_percent);
        const double growth = roof::spread(many.free_percent).median / percent.median;
        const roof::Spread free_over_fixed = roof::spread(one.free_over_fixed);
        before = percent.median;
        std::printf("%-28s  %5.1f", line.name, floor);
        for (const auto *percents : {&one.free_percent, &one.fixed_percent, &many.free_percent, &many.fixed_percent})
            print_percent(*percents);
        std::printf("  %6.3f", growth);
        if (one.free_over_fixed.empty())
            std::printf("  %15s", "-");
        else
            std::printf("  %7.3f (%.3f)", free_over_fixed.median, free_over_fixed.iqr());
        std::printf("      %4.0f, %4.0f   %.2f, %.2f", roof::spread(one.peak).median, roof::spread(many.peak).median,
                    roof::spread(one.others).median, roof::spread(many.others).median);
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

} // namespace bench
