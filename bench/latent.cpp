// Decoding with multi-head latent attention: a cache whose rows are key and, in their leading part, value.
#include "commands.h"

#include <cstdio>
#include <vector>

#include "../instruments/roof/roof.h"
#include "table.h"
#include "workload.h"

namespace bench {
namespace {

constexpr const char *in_key = "mla_h16_d576", *separate = "mla_h16_d576_separate";
constexpr int64_t lengths[] = {1024, 4096, 32768};
constexpr double most = 1.0; // time with value_in_key / time with a separate value, beyond half the interquartile range

struct Measured {
    std::vector<double> ratio, microseconds, peak_percent, read_percent;
};

// "" and the rounds, or one sentence.
std::string measure(const polyhead::Kernel &one, const polyhead::Kernel &other, int64_t keys, roof::Workers &workers, int rounds,
                    Measured *m) {
    const Workload joined(one, {1, 1, keys}), apart(other, {1, 1, keys});
    for (const Workload *workload : {&joined, &apart})
        if (const std::string error = workload->check(); !error.empty())
            return error;
    for (int i = 0; i < rounds; i++) {
        const double read = roof::read_gbs(workers);
        const roof::Round round = roof::measure_round(workers, {[&] { (void)joined.run(); }, [&] { (void)apart.run(); }}, 0.05);
        m->ratio.push_back(round.seconds[0] / round.seconds[1]);
        m->microseconds.push_back(1e6 * round.seconds[0]);
        m->peak_percent.push_back(100 * joined.flops() / 1e9 / round.seconds[0] / round.peak_gflops);
        m->read_percent.push_back(100 * joined.bytes() / 1e9 / round.seconds[0] / read);
    }
    return "";
}

} // namespace

int run_latent(const Options &options) {
    const int threads = most_threads(options), rounds = options.rounds;
    std::string error;
    const polyhead::Kernel *one = kernel_named(in_key, &error), *other = one ? kernel_named(separate, &error) : nullptr;
    if (!other) {
        std::printf("%s\n", error.c_str());
        return 1;
    }
    int broken = 0;
    std::printf("%s / %s, one query: medians (interquartile range) of %d rounds\n", in_key, separate, rounds);
    std::printf("%8s  %7s  %12s  %14s  %14s  %14s\n", "keys", "threads", "us", "ratio of time", "% of FMA peak", "% of read rate");
    for (const int count : thread_counts(threads)) {
        polyhead::set_num_threads(count);
        roof::Workers workers(count);
        for (const int64_t keys : lengths) {
            Measured m;
            if (const std::string error = measure(*one, *other, keys, workers, rounds, &m); !error.empty()) {
                std::printf("%8lld  %s\n", static_cast<long long>(keys), error.c_str());
                broken++;
                continue;
            }
            const roof::Spread ratio = roof::spread(m.ratio), peak = roof::spread(m.peak_percent), read = roof::spread(m.read_percent);
            const bool within = ratio.median <= most + ratio.iqr() / 2;
            std::printf("%8lld  %7d  %12.1f  %6.3f (%.3f)  %7.1f (%4.1f)  %7.1f (%4.1f)%s\n", static_cast<long long>(keys), count,
                        roof::spread(m.microseconds).median, ratio.median, ratio.iqr(), peak.median, peak.iqr(), read.median, read.iqr(),
                        within ? "" : "  SLOWER");
            broken += within ? 0 : 1;
        }
    }
    return broken ? 1 : 0;
}

} // namespace bench
