// What pages cost a decoding step: the same keys in a contiguous cache and in the pages of a pool, in any order.
#include "pages.h"

#include <cstdio>
#include <vector>

#include "kernels.h"
#include "roof.h"
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
constexpr Shape pages_shapes[] = {{1, 1, 4096, 0}, {1, 1, 32768, 0}, {1, 512, 2048, 0}};

struct Measured {
    std::vector<double> ratio, microseconds, read_percent;
};

// "" and the rounds, or one sentence.
std::string measure(const polyhead::Kernel &one, const polyhead::Kernel &other, const Shape &shape, roof::Team &team, int rounds,
                    Measured *m) {
    const Workload contiguous(one, shape), paged(other, shape);
    for (const Workload *workload : {&contiguous, &paged})
        if (const std::string error = workload->check(); !error.empty())
            return error;
    for (int i = 0; i < rounds; i++) {
        const double read = roof::read_gbs(team);
        const roof::Round round = roof::measure_round(team, {[&] { (void)contiguous.run(); }, [&] { (void)paged.run(); }}, 0.05);
        m->ratio.push_back(round.seconds[0] / round.seconds[1]);
        m->microseconds.push_back(1e6 * round.seconds[1]);
        m->read_percent.push_back(100 * contiguous.bytes() / 1e9 / round.seconds[1] / read);
    }
    return "";
}

} // namespace

int print_pages(int threads, int rounds) {
    int broken = 0;
    std::printf("time of a contiguous cache / time with pages: medians (interquartile range) of %d rounds\n", rounds);
    std::printf("%-28s  %14s  %7s  %14s  %12s  %14s  at least\n", "kernel", "queries x keys", "threads", "ratio", "pages, us",
                "% of read rate");
    for (const int count : thread_counts(threads)) {
        polyhead::set_num_threads(count);
        roof::Team team(count);
        for (const PagesLine &line : pages_lines) {
            const polyhead::Kernel *one = kernel_named(line.contiguous), *other = kernel_named(line.paged);
            if (!one || !other) {
                std::printf("the table has no kernel %s\n", one ? line.paged : line.contiguous);
                broken++;
                continue;
            }
            for (const Shape &shape : pages_shapes) {
                Measured m;
                const std::string call = std::to_string(shape.seq_len_q) + " x " + std::to_string(shape.seq_len_kv);
                if (const std::string error = measure(*one, *other, shape, team, rounds, &m); !error.empty()) {
                    std::printf("%-28s  %14s  %s\n", line.paged, call.c_str(), error.c_str());
                    broken++;
                    continue;
                }
                const roof::Spread ratio = roof::spread(m.ratio), read = roof::spread(m.read_percent);
                const bool within = ratio.median >= line.least;
                std::printf("%-28s  %14s  %7d  %6.3f (%.3f)  %12.1f  %7.1f (%4.1f)  %.2f%s\n", line.paged, call.c_str(), count,
                            ratio.median, ratio.iqr(), roof::spread(m.microseconds).median, read.median, read.iqr(), line.least,
                            within ? "" : "  BELOW");
                broken += within ? 0 : 1;
            }
        }
    }
    return broken ? 1 : 0;
}

} // namespace bench
