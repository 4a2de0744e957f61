#include "commands.h"

#include <cstdio>
#include <string>
#include <vector>

#include "../instruments/roof/roof.h"
#include "cold_caches.h"
#include "formula_loops.h"
#include "table.h"

namespace bench {
namespace {

struct DecodeLine {
    const char *kernel, *name;
    int32_t dtype;
    double wide, narrow; // % of a plain read at least, with AVX-512 (bf16, int8: with dot products), and with AVX2
};
constexpr DecodeLine decode_lines[] = {{"gqa_h32_kv8_d128", "f32", POLYHEAD_F32, 85, 75},
                                       {"gqa_h32_kv8_d128_bf16", "bf16", POLYHEAD_BF16, 80, 65},
                                       {"gqa_h32_kv8_d128_f16", "f16", POLYHEAD_F16, 70, 60},
                                       {"int8_h32_kv8_d128", "int8", POLYHEAD_I8, 60, 50}};
constexpr int64_t cache_keys[] = {4096, 32768};
constexpr int64_t growth_keys = 32768;
constexpr double least_growth = 0.9;

double least_percent(const DecodeLine &line) {
    const uint64_t features = polyhead_cpu_features();
    const bool dots = line.dtype == POLYHEAD_BF16 || line.dtype == POLYHEAD_I8;
    const bool wide = features & (dots ? POLYHEAD_CPU_AVX512_BF16_VNNI : POLYHEAD_CPU_AVX512);
    return wide ? line.wide : line.narrow;
}

struct Measured {
    std::vector<double> percent, microseconds, read;
};

void measure_round(ColdCaches *caches, roof::Workers &workers, Measured *m) {
    std::vector<double> reads, steps;
    for (size_t i = 0; i < caches->turns(); i++) {
        const ColdCaches::Turn turn = caches->turn(workers);
        reads.push_back(turn.read);
        steps.push_back(turn.step);
    }
    const double read = roof::spread(reads).median, step = roof::spread(steps).median;
    m->percent.push_back(100 * read / step);
    m->microseconds.push_back(1e6 * step);
    m->read.push_back(caches->bytes() / read / 1e9);
}

std::string measure(const polyhead::Kernel &kernel, int64_t keys, roof::Workers &workers, int rounds, Measured *m) {
    ColdCaches caches;
    if (const std::string error = caches.make(kernel, keys); !error.empty())
        return error;
    for (int round = 0; round < rounds; round++)
        measure_round(&caches, workers, m);
    return "";
}

// One key/value head: what the other threads add to a step, compared with what they add to a plain read in the same round. Returns whether
// it is enough.
bool print_growth(int threads, int rounds) {
    const char *const name = "mqa_h8_d64";
    std::string error;
    const polyhead::Kernel *kernel = kernel_named(name, &error);
    ColdCaches caches;
    error = kernel ? caches.make(*kernel, growth_keys) : error;
    if (!error.empty()) {
        std::printf("%s\n", error.c_str());
        return false;
    }
    roof::Workers one(1), all(threads);
    std::vector<double> growths, of_read;
    for (int round = 0; round < rounds; round++) {
        Measured m;
        for (roof::Workers *workers : {&one, &all}) {
            polyhead::set_num_threads(workers->threads());
            measure_round(&caches, *workers, &m);
        }
        of_read.push_back(m.read[1] / m.read[0]);
        growths.push_back(m.percent[1] / m.percent[0]);
    }
    const roof::Spread growth = roof::spread(growths);
    const bool within = growth.median >= least_growth;
    std::printf("%s, %lld keys: growth of a step to %d threads / growth of a read (%.2f): %.3f (%.3f), at least %.2f%s\n", name,
                static_cast<long long>(growth_keys), threads, roof::spread(of_read).median, growth.median, growth.iqr(), least_growth,
                within ? "" : "  BELOW");
    return within;
}

} // namespace

int run_decode(const Options &options) {
    const int threads = most_threads(options), rounds = options.rounds;
    int broken = 0;
    std::printf(
        "a step of one query, 32 heads, 8 key/value heads, head_dim 128: time of a plain read of the cache / time of the step, both from\n"
        "memory, medians (interquartile range) of %d rounds; formula: loads, conversions and products alone, of one core, from L1\n",
        rounds);
    std::printf("%-5s  %6s  %7s  %14s  %12s  %10s  %10s  %14s  at least\n", "type", "keys", "threads", "% of a read", "step, us",
                "step, GB/s", "read, GB/s", "formula, GB/s");
    for (const int count : thread_counts(threads)) {
        polyhead::set_num_threads(count);
        roof::Workers workers(count);
        for (const DecodeLine &line : decode_lines) {
            std::string missing;
            const polyhead::Kernel *kernel = kernel_named(line.kernel, &missing);
            if (!kernel) {
                std::printf("%s: %s\n", line.kernel, missing.c_str());
                broken++;
                continue;
            }
            const double formula = roof::formula_gbs(line.dtype, 0.05), least = least_percent(line);
            for (const int64_t keys : cache_keys) {
                Measured m;
                if (const std::string error = measure(*kernel, keys, workers, rounds, &m); !error.empty()) {
                    std::printf("%-5s  %6lld  %s\n", line.name, static_cast<long long>(keys), error.c_str());
                    broken++;
                    continue;
                }
                const roof::Spread percent = roof::spread(m.percent), read = roof::spread(m.read);
                const bool within = percent.median >= least;
                std::printf("%-5s  %6lld  %7d  %7.1f (%4.1f)  %12.1f  %10.1f  %10.1f  %14.1f  %.0f%s\n", line.name,
                            static_cast<long long>(keys), count, percent.median, percent.iqr(), roof::spread(m.microseconds).median,
                            read.median * percent.median / 100, read.median, formula * count, least, within ? "" : "  BELOW");
                std::fflush(stdout);
                broken += within ? 0 : 1;
            }
        }
    }
    if (threads > 1 && !print_growth(threads, rounds))
        broken++;
    return broken ? 1 : 0;
}

} // namespace bench
