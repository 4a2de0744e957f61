// What pages cost a decoding step: the same keys in a contiguous cache and in the pages of a pool, in any order.
#include "commands.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "../instruments/roof/roof.h"
#include "cold_caches.h"
#include "table.h"
#include "workload.h"

namespace bench {
namespace {

struct PagesLine {
    const char *contiguous, *paged;
    double least; // time of the contiguous cache / time with pages
};
constexpr PagesLine pages_lines[] = {{"gqa_h32_kv8_d128", "pages16_h32_kv8_d128", 0.95},
                                     {"gqa_h32_kv8_d128", "pages64_h32_kv8_d128", 0.95},
                                     {"gqa_h32_kv8_d128_bf16", "pages16_h32_kv8_d128_bf16", 0.95},
                                     {"int8_h32_kv8_d128", "int8_pages16_h32_kv8_d128", 0.95}};
constexpr int64_t cache_keys[] = {4096, 32768};
constexpr Lengths prefill = {1, 512, 2048, 0};

struct Measured {
    std::vector<double> ratio, reads, microseconds; // reads: time of a plain read of the contiguous cache / of the same bytes in pages
};

// "" and the rounds, or one sentence. Steps of one query and plain reads, each from memory.
std::string measure_steps(const polyhead::Kernel &one, const polyhead::Kernel &other, int64_t keys, roof::Workers &workers, int rounds,
                          Measured *m) {
    ColdCaches contiguous, paged;
    for (const std::string &error : {contiguous.make(one, keys), paged.make(other, keys)})
        if (!error.empty())
            return error;
    for (int round = 0; round < rounds; round++) {
        std::vector<double> times[4];
        for (size_t i = 0; i < std::max(contiguous.turns(), paged.turns()); i++) {
            const ColdCaches::Turn turns[] = {contiguous.turn(workers), paged.turn(workers)};
            for (size_t n = 0; n < 2; n++) {
                times[2 * n].push_back(turns[n].step);
                times[2 * n + 1].push_back(turns[n].read);
            }
        }
        const auto median = [&](size_t n) { return roof::spread(times[n]).median; };
        m->ratio.push_back(median(0) / median(2));
        m->reads.push_back(median(1) / median(3));
        m->microseconds.push_back(1e6 * median(2));
    }
    return "";
}

// The same for many queries, which are bound by multiply-adds.
std::string measure_prefill(const polyhead::Kernel &one, const polyhead::Kernel &other, roof::Workers &workers, int rounds, Measured *m) {
    const Workload contiguous(one, prefill), paged(other, prefill);
    for (const Workload *workload : {&contiguous, &paged})
        if (const std::string error = workload->check(); !error.empty())
            return error;
    for (int i = 0; i < rounds; i++) {
        const roof::Round round = roof::measure_round(workers, {[&] { (void)contiguous.run(); }, [&] { (void)paged.run(); }}, 0.05);
        m->ratio.push_back(round.seconds[0] / round.seconds[1]);
        m->microseconds.push_back(1e6 * round.seconds[1]);
    }
    return "";
}

// Prints a row; returns whether it is within its line, or loses no more than a plain read does.
bool print_row(const PagesLine &line, const std::string &call, int threads, const Measured &m) {
    const roof::Spread ratio = roof::spread(m.ratio), reads = roof::spread(m.reads);
    const bool within = ratio.median >= line.least, bounded = !m.reads.empty() && ratio.median >= line.least * reads.median;
    char read[32] = "";
    if (!m.reads.empty())
        std::snprintf(read, sizeof read, "%.3f (%.3f)", reads.median, reads.iqr());
    std::printf("%-28s  %14s  %7d  %6.3f (%.3f)  %14s  %12.1f  %.2f%s\n", line.paged, call.c_str(), threads, ratio.median, ratio.iqr(),
                read, roof::spread(m.microseconds).median, line.least,
                within    ? ""
                : bounded ? ": bounded by memory"
                          : "  BELOW");
    std::fflush(stdout);
    return within || bounded;
}

} // namespace

int run_pages(const Options &options) {
    const int threads = most_threads(options), rounds = options.rounds;
    int broken = 0;
    std::printf("time of a contiguous cache / time with pages, and the same of plain reads of both, steps from memory: medians\n"
                "(interquartile range) of %d rounds\n",
                rounds);
    std::printf("%-28s  %14s  %7s  %14s  %14s  %12s  at least\n", "kernel", "queries x keys", "threads", "ratio", "plain reads",
                "pages, us");
    for (const int count : thread_counts(threads)) {
        polyhead::set_num_threads(count);
        roof::Workers workers(count);
        for (const PagesLine &line : pages_lines) {
            std::string missing;
            const polyhead::Kernel *one = kernel_named(line.contiguous, &missing),
                                   *other = one ? kernel_named(line.paged, &missing) : nullptr;
            if (!other) {
                std::printf("%s: %s\n", one ? line.paged : line.contiguous, missing.c_str());
                broken++;
                continue;
            }
            const auto print = [&](const Lengths &shape, const std::string &error, const Measured &m) {
                const std::string call = std::to_string(shape.seq_len_q) + " x " + std::to_string(shape.seq_len_kv);
                if (!error.empty())
                    std::printf("%-28s  %14s  %s\n", line.paged, call.c_str(), error.c_str());
                broken += error.empty() && print_row(line, call, count, m) ? 0 : 1;
            };
            for (const int64_t keys : cache_keys) {
                Measured m;
                const std::string error = measure_steps(*one, *other, keys, workers, rounds, &m);
                print({1, 1, keys, 0}, error, m);
            }
            Measured m;
            const std::string error = measure_prefill(*one, *other, workers, rounds, &m);
            print(prefill, error, m);
        }
    }
    return broken ? 1 : 0;
}

} // namespace bench
