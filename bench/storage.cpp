// Kernels of 16-bit storage beside those of f32.
#include "commands.h"

#include <cstdio>
#include <memory>
#include <vector>

#include "../instruments/roof/roof.h"
#include "table.h"
#include "workload.h"

namespace bench {
namespace {

constexpr double least = 0.92; // time of f32 / time, plus half the interquartile range

// The line's kernel with free lengths in this type; null where this machine runs none.
const polyhead::Kernel *kernel_of_type(const SpeedLine &line, int32_t dtype) {
    polyhead::Problem problem = line.problem;
    problem.dtype = dtype;
    std::string error;
    return kernel_of(problem, &error);
}

// One storage type against f32. Returns false when it is too slow, or wrong.
bool print_line(const SpeedLine &line, int32_t dtype, const polyhead::Kernel &one, const polyhead::Kernel &other, roof::Workers &workers,
                int rounds) {
    const Workload f32(one, line.shape), stored(other, line.shape);
    const char *const name = dtype == POLYHEAD_BF16 ? "bf16" : "f16";
    for (const Workload *workload : {&f32, &stored})
        if (const std::string error = workload->check(); !error.empty()) {
            std::printf("%-28s  %-5s  %7d  %s\n", line.name, name, workers.threads(), error.c_str());
            return false;
        }
    const roof::Peak peak = roof::peak_of(dtype);
    std::vector<double> ratios, percents;
    for (int i = 0; i < rounds; i++) {
        const roof::Round round = roof::measure_round(workers, {[&] { (void)f32.run(); }, [&] { (void)stored.run(); }}, 0.05, 5, peak);
        ratios.push_back(round.seconds[0] / round.seconds[1]);
        percents.push_back(100 * stored.flops() / 1e9 / round.seconds[1] / round.peak_gflops);
    }
    const roof::Spread ratio = roof::spread(ratios), percent = roof::spread(percents);
    const bool within = ratio.median >= least - ratio.iqr() / 2;
    std::printf("%-28s  %-5s  %7d  %6.3f (%.3f)  %6.1f (%4.1f)  %s%s\n", line.name, name, workers.threads(), ratio.median, ratio.iqr(),
                percent.median, percent.iqr(), roof::peak_name(peak), within ? "" : "  SLOWER");
    std::fflush(stdout);
    return within;
}

} // namespace

int run_storage(const Options &options) {
    const int threads = most_threads(options), rounds = options.rounds;
    int broken = 0;
    std::printf("16-bit storage beside f32: medians (interquartile range) of %d rounds\n", rounds);
    std::printf("%-28s  %-5s  %7s  %14s  %13s\n", "", "type", "threads", "time f32/time", "% of peak");
    for (const int count : thread_counts(threads)) {
        polyhead::set_num_threads(count);
        roof::Workers workers(count);
        for (const SpeedLine &line : speed_lines())
            for (const int32_t dtype : {POLYHEAD_BF16, POLYHEAD_F16}) {
                if (line.problem.dtype != POLYHEAD_F32)
                    continue;
                const polyhead::Kernel *one = kernel_of_type(line, POLYHEAD_F32), *other = kernel_of_type(line, dtype);
                if (one && other)
                    broken += print_line(line, dtype, *one, *other, workers, rounds) ? 0 : 1;
            }
    }
    std::printf("time f32/time: at least %.2f; reached when the median plus half of the interquartile range is\n", least);
    return broken ? 1 : 0;
}

} // namespace bench
