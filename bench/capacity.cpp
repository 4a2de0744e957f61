// How the capacity of a cache changes the time of a decoding step, which should depend only on the valid keys.
#include "commands.h"

#include <cstdio>
#include <memory>
#include <vector>

#include "../instruments/roof/roof.h"
#include "table.h"
#include "workload.h"

namespace bench {
namespace {

constexpr const char *decoder = "gqa_h32_kv8_d128";

struct CapacityLine {
    int64_t valid, small, large;
    double most; // time in the large cache / time in the small one
};
constexpr CapacityLine capacity_lines[] = {{16, 256, 65536, 1.3}, {512, 2048, 131072, 1.1}};

Lengths step_in(int64_t capacity, int64_t valid) {
    Lengths shape{1, 1, capacity};
    shape.valid_keys = valid;
    return shape;
}

// "" and the ratios of the rounds, or one sentence.
std::string measure(const polyhead::Kernel &kernel, const CapacityLine &line, roof::Workers &workers, int rounds,
                    std::vector<double> *ratios, std::vector<double> *microseconds) {
    const Workload small(kernel, step_in(line.small, line.valid)), large(kernel, step_in(line.large, line.valid));
    for (const Workload *workload : {&small, &large})
        if (const std::string error = workload->check(); !error.empty())
            return error;
    for (int i = 0; i < rounds; i++) {
        const roof::Round round = roof::measure_round(workers, {[&] { (void)small.run(); }, [&] { (void)large.run(); }}, 0.05);
        ratios->push_back(round.seconds[1] / round.seconds[0]);
        microseconds->push_back(1e6 * round.seconds[0]);
    }
    return "";
}

} // namespace

int run_capacity(const Options &options) {
    const int threads = most_threads(options), rounds = options.rounds;
    std::string error;
    const polyhead::Kernel *kernel = kernel_named(decoder, &error);
    if (!kernel) {
        std::printf("%s\n", error.c_str());
        return 1;
    }
    int broken = 0;
    std::printf("%s, one query: time in a large cache / time in a small one, median (interquartile range) of %d rounds\n", decoder, rounds);
    std::printf("%10s  %18s  %7s  %14s  %12s  at most\n", "valid keys", "capacities", "threads", "ratio", "small, us");
    for (const int count : thread_counts(threads)) {
        polyhead::set_num_threads(count);
        roof::Workers workers(count);
        for (const CapacityLine &line : capacity_lines) {
            std::vector<double> ratios, microseconds;
            const std::string error = measure(*kernel, line, workers, rounds, &ratios, &microseconds);
            if (!error.empty()) {
                std::printf("%10lld  %s\n", static_cast<long long>(line.valid), error.c_str());
                broken++;
                continue;
            }
            const roof::Spread ratio = roof::spread(ratios);
            const bool within = ratio.median <= line.most;
            std::printf("%10lld  %8lld, %8lld  %7d  %6.3f (%.3f)  %12.1f  %.1f%s\n", static_cast<long long>(line.valid),
                        static_cast<long long>(line.small), static_cast<long long>(line.large), count, ratio.median, ratio.iqr(),
                        roof::spread(microseconds).median, line.most, within ? "" : "  ABOVE");
            broken += within ? 0 : 1;
        }
    }
    return broken ? 1 : 0;
}

} // namespace bench
