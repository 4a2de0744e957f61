// The time of each feature and each pair of features relative to the plain kernel, measured alternately.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "../instruments/roof/roof.h"
#include "commands.h"
#include "feature_call.h"

namespace {

using Json = nlohmann::ordered_json;

struct Measured {
    std::string name, error;
    double limit = 0 /* none */, work_left = 1, written_bytes = 0, pair_bytes = 0;
    roof::Spread raw, ratio;  // time on / time off; the same by the work left
    roof::Spread less_a_read; // ratio without the time of a plain read of what rows see of masks and biases, where there are any
    double off_ms = 0, on_ms = 0, read_ms = 0, others = 0;
    bool within() const { return error.empty() && ratio.median <= limit + ratio.iqr() / 2; }
    bool bounded_by_memory() const { return error.empty() && pair_bytes > 0 && less_a_read.median <= limit; }
    // What a tenth of the cases may be.
    bool nearly() const { return error.empty() && ratio.median <= limit / 0.95 + ratio.iqr() / 2; }
};

// The shortest plain read of the tensors over pairs, in the caches where they fit, as for the kernels.
double seconds_of_a_read(roof::Workers &workers, const std::vector<roof::Block> &pairs) {
    double least = pairs.empty() ? 0 : 1e30;
    for (int times = 0; times < 4 && !pairs.empty(); times++)
        least = std::min(least, roof::read_seconds(workers, pairs));
    return least;
}

// Rounds of both calls in turns. The shortest time of a round counts, because other programs can only make it longer.
Measured measure(const bench::FeatureCase &feature_case, const std::function<void()> &off, roof::Workers &workers, int rounds) {
    Measured measured;
    measured.name = feature_case.name();
    measured.limit = feature_case.limit();
    const bench::FeatureCall feature(feature_case);
    measured.error = feature.check();
    if (!measured.error.empty())
        return measured;
    measured.work_left = feature.work_left();
    measured.written_bytes = feature.written_bytes();
    const std::vector<roof::Block> pairs = feature.seen_pairs();
    for (const roof::Block &block : pairs)
        measured.pair_bytes += static_cast<double>(block.bytes);
    const std::function<void()> on = [&] { feature.run(); };
    std::vector<double> raw, ratio, less_a_read, off_ms, on_ms, read_ms, others;
    for (int i = 0; i < rounds; i++) {
        const roof::Round round = roof::measure_round(workers, {off, on}, 0.03, 3, roof::Peak::fma, roof::Calls::repeated);
        off_ms.push_back(1e3 * round.least[0]);
        on_ms.push_back(1e3 * round.least[1]);
        others.push_back(round.others_busy);
        raw.push_back(round.least[1] / round.least[0]);
        ratio.push_back(raw.back() / measured.work_left);
        read_ms.push_back(1e3 * seconds_of_a_read(workers, pairs));
        less_a_read.push_back((on_ms.back() - read_ms.back()) / off_ms.back() / measured.work_left);
    }
    measured.raw = roof::spread(raw);
    measured.ratio = roof::spread(ratio);
    measured.less_a_read = roof::spread(less_a_read);
    measured.read_ms = roof::spread(read_ms).median;
    measured.off_ms = roof::spread(off_ms).median;
    measured.on_ms = roof::spread(on_ms).median;
    measured.others = roof::spread(others).median;
    return measured;
}

void print(const Measured &m) {
    if (m.error.empty())
        std::printf("%-48s %8.3f %8.3f   %6.3f (%.3f)  %8.3f %8.3f %11.2f", m.name.c_str(), m.raw.median, m.work_left, m.ratio.median,
                    m.ratio.iqr(), m.off_ms, m.on_ms, m.others);
    else
        std::printf("%-48s ERROR: %s", m.name.c_str(), m.error.c_str());
    if (m.error.empty() && m.limit > 0)
        std::printf(" %5.2f  %s", m.limit, m.within() ? "ok" : m.nearly() ? "NEAR THE LINE" : "BEYOND THE LINE");
    if (m.error.empty() && m.limit > 0 && !m.within() && m.pair_bytes > 0)
        std::printf("; %.3f without a plain read of its %.1f MiB at %.1f GB/s%s", m.less_a_read.median, m.pair_bytes / (1 << 20),
                    m.pair_bytes / m.read_ms / 1e6, m.bounded_by_memory() ? ": bounded by memory" : "");
    std::printf("\n");
    std::fflush(stdout);
}

std::vector<Measured> measure_all(const std::vector<bench::FeatureCase> &cases, const std::function<void()> &plain, roof::Workers &workers,
                                  const bench::Options &options) {
    const std::regex wanted(options.filter);
    std::vector<Measured> all;
    for (const bench::FeatureCase &one : cases)
        if (std::regex_search(one.name(), wanted)) {
            if (all.empty())
                std::printf("\n%-48s %8s %8s   %14s  %8s %8s %11s %5s\n", "feature", "on/off", "work", "by work left", "off ms", "on ms",
                            "others busy", "line");
            all.push_back(measure(one, plain, workers, options.rounds));
            print(all.back());
        }
    return all;
}

// How many lie within the line; at least nine of ten must, and the others within line / 0.95 or bounded by the rate of memory.
bool count(const char *what, const std::vector<Measured> &all) {
    size_t within = 0, nearly = 0;
    for (const Measured &m : all) {
        within += m.within();
        nearly += m.nearly() || m.bounded_by_memory();
    }
    if (!all.empty())
        std::printf("%s: %zu of %zu within the line, %zu within line / 0.95 or bounded by memory\n", what, within, all.size(), nearly);
    return nearly == all.size() && 10 * within >= 9 * all.size();
}

void print_matrix(const std::vector<Measured> &pairs) {
    if (pairs.empty())
        return;
    std::printf("\ntime by the work left, of pairs; * beyond the line\n%-25s", "");
    for (size_t j = 1; j <= bench::features().size(); j++)
        std::printf(" %5zu", j);
    std::printf("\n");
    for (size_t i = 0; i < bench::features().size(); i++) {
        std::printf("%-22s %2zu", bench::features()[i].name, i + 1);
        for (size_t j = 0; j < bench::features().size(); j++) {
            const std::string name = std::string(bench::features()[i].name) + " + " + bench::features()[j].name;
            const Measured *found = nullptr;
            for (const Measured &m : pairs)
                found = m.name == name ? &m : found;
            if (found && found->error.empty())
                std::printf(" %4.2f%c", found->ratio.median, found->within() ? ' ' : '*');
            else
                std::printf(" %4s ", found ? "ERR" : "");
        }
        std::printf("\n");
    }
}

// What an output costs beyond the writing of its bytes, at the speed of a copy.
void print_outputs(const std::vector<Measured> &outputs, double copy_gbs) {
    if (!outputs.empty())
        std::printf("\n%-20s %9s %12s %10s %26s\n", "output", "MiB", "GB/s written", "of a copy", "on/off less the writing");
    for (const Measured &m : outputs)
        if (m.error.empty()) {
            const double gbs = m.written_bytes / m.on_ms / 1e6;
            std::printf("%-20s %9.1f %12.1f %9.0f%% %26.3f\n", m.name.c_str(), m.written_bytes / (1 << 20), gbs, 100 * gbs / copy_gbs,
                        (m.on_ms - m.written_bytes / copy_gbs / 1e6) / m.off_ms);
        }
}

Json json_of(const std::vector<Measured> &all) {
    Json list = Json::array();
    for (const Measured &m : all)
        list.push_back({{"name", m.name},
                        {"error", m.error},
                        {"ratio", m.raw.median},
                        {"work_left", m.work_left},
                        {"ratio_by_work_left", m.ratio.median},
                        {"iqr", m.ratio.iqr()},
                        {"line", m.limit},
                        {"within", m.within()},
                        {"off_ms", m.off_ms},
                        {"on_ms", m.on_ms},
                        {"written_bytes", m.written_bytes},
                        {"pair_bytes", m.pair_bytes},
                        {"read_ms", m.read_ms},
                        {"less_a_read", m.less_a_read.median},
                        {"others_busy", m.others}});
    return list;
}

std::vector<bench::FeatureCase> singles(const std::vector<bench::Feature> &features) {
    std::vector<bench::FeatureCase> cases;
    for (const bench::Feature &feature : features)
        cases.push_back(bench::FeatureCase({&feature}));
    return cases;
}

} // namespace

int bench::run_features(const Options &options) {
    const bench::FeatureCall ours{bench::FeatureCase()};
    polyhead::set_num_threads(options.threads);
    roof::Workers workers(options.threads);
    const double copy_gbs = roof::copy_gbs(workers);
    std::string error = ours.check();
    std::unique_ptr<bench::PlainOfCheckout> theirs;
    if (error.empty() && !options.against.empty()) {
        ours.run();
        theirs = std::make_unique<bench::PlainOfCheckout>(options.against, ours, options.threads);
        error = theirs->check();
    }
    const std::function<void()> plain = [&] { theirs ? theirs->run() : ours.run(); };
    if (!error.empty()) {
        std::fprintf(stderr, "polyhead_bench: %s\n", error.c_str());
        return 1;
    }
    std::printf("B1 H12 T1024 d64 f32, %d thread%s, %d rounds; a copy writes %.1f GB/s%s\n", options.threads,
                options.threads == 1 ? "" : "s", options.rounds, copy_gbs, theirs ? "; off: the plain kernel of the other checkout" : "");
    if (theirs)
        print(measure(bench::FeatureCase(), plain, workers, options.rounds));
    const std::vector<Measured> one = measure_all(singles(bench::features()), plain, workers, options);
    const std::vector<Measured> outputs = measure_all(singles(bench::score_outputs()), plain, workers, options);
    print_outputs(outputs, copy_gbs);
    std::vector<Measured> two;
    if (options.pairs) {
        two = measure_all(bench::FeatureCase::pairs(), plain, workers, options);
        print_matrix(two);
    }
    std::printf("\n");
    const bool good = count("features", one), both_good = !options.pairs || count("pairs", two);
    if (!options.json.empty())
        std::ofstream(options.json) << Json({{"threads", options.threads},
                                             {"rounds", options.rounds},
                                             {"copy_gbs", copy_gbs},
                                             {"features", json_of(one)},
                                             {"outputs", json_of(outputs)},
                                             {"pairs", json_of(two)}})
                                           .dump(1)
                                    << "\n";
    return good && both_good ? 0 : 1;
}
