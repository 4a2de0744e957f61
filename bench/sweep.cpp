// The speed over the query lengths, for some head dims, plain and causal, and the lengths that fall behind their
// neighbours.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "../instruments/calls/compiled_kernel.h"
#include "../instruments/calls/inputs.h"
#include "../instruments/calls/problems.h"
#include "../instruments/calls/subject.h"
#include "../instruments/reference/check_answer.h"
#include "../instruments/roof/roof.h"
#include "commands.h"

namespace {

using Json = nlohmann::ordered_json;

constexpr int heads = 8;
constexpr int head_dims[] = {32, 40, 64, 72, 80, 96, 128};
constexpr int64_t every_length_to = 160, longest = 1024, step = 7; // each length to 160, then every seventh
constexpr int64_t first_judged = 32;                               // shorter ones must take at most its time
constexpr int64_t whole_queries = 8;                               // FLOPs are counted at the query length rounded up to it
constexpr size_t neighbours = 16;
constexpr double least = 0.85; // of the median of the neighbours
constexpr double least_seconds = 0.001;
constexpr int least_calls = 3;

struct Point {
    int64_t length = 0;
    double flops = 0;
    std::vector<double> seconds, percent, of_neighbours; // of each round
};

struct Line {
    int head_dim = 0;
    bool causal = false;
    std::vector<Point> points;
    std::string error;
};

polyhead::test::Shape shape_of(int64_t length) {
    polyhead::test::Shape shape;
    shape.seq_len_q = shape.seq_len_kv = length;
    return shape;
}

std::vector<int64_t> lengths() {
    std::vector<int64_t> all;
    for (int64_t length = 1; length <= longest; length += length < every_length_to ? 1 : step)
        all.push_back(length);
    return all;
}

// Of a query length rounded up, so that a few queries more than whole vectors are not counted as a loss.
double flops_of(int head_dim, bool causal, int64_t length) {
    const int64_t rows = (length + whole_queries - 1) / whole_queries * whole_queries;
    double pairs = 0;
    for (int64_t q = 0; q < rows; q++)
        pairs += static_cast<double>(causal ? std::min(q + 1, length) : length);
    return 4.0 * heads * head_dim * pairs;
}

// The shortest of some calls: other programs can only make them longer.
double seconds_of(const polyhead::Kernel &kernel, const polyhead::test::Inputs &inputs) {
    double shortest = 1e30, all = 0;
    for (int i = 0; i < least_calls || all < least_seconds; i++) {
        const double start = roof::now();
        (void)polyhead_run(&kernel, &inputs.args()); // checked before
        const double taken = roof::now() - start;
        shortest = std::min(shortest, taken);
        all += taken;
    }
    return shortest;
}

// The speed of a point over the median speed of the points around it, itself left out.
double of_neighbours(const std::vector<double> &speeds, size_t at) {
    size_t first = at, last = at; // the nearest, half on each side where there are so many
    while (last - first < neighbours && (first > 0 || last + 1 < speeds.size())) {
        const bool down = first > 0 && (at - first <= last - at || last + 1 == speeds.size());
        down ? first-- : last++;
    }
    std::vector<double> around;
    for (size_t i = first; i <= last; i++)
        if (i != at)
            around.push_back(speeds[i]);
    return speeds[at] / roof::spread(around).median;
}

Line measure(int head_dim, bool causal, const bench::Options &options, roof::Workers &workers) {
    Line line{head_dim, causal, {}, ""};
    polyhead::Problem problem = polyhead::test::sdpa_problem(heads, head_dim);
    problem.causal = causal ? POLYHEAD_BOTTOM_RIGHT : POLYHEAD_NOT_CAUSAL;
    const polyhead::test::CompiledKernel compiled(problem, {"host", "", "sweep", "", false});
    line.error = compiled.error();
    if (!line.error.empty())
        return line;
    const polyhead::test::KernelSubject subject(compiled.kernel(), 1);
    std::vector<std::unique_ptr<polyhead::test::Inputs>> inputs;
    for (const int64_t length : lengths()) {
        Point point;
        point.length = length;
        point.flops = flops_of(head_dim, causal, length);
        line.points.push_back(point);
        inputs.push_back(std::make_unique<polyhead::test::Inputs>(problem, shape_of(length)));
        line.error = polyhead::test::check_answer(subject.subject(), shape_of(length), nullptr, 2e6);
        if (!line.error.empty())
            return line;
    }
    for (int round = 0; round < options.rounds; round++) {
        const double peak = roof::peak_gflops(workers, 0.02);
        std::vector<double> judged;
        for (size_t i = 0; i < line.points.size(); i++) {
            Point &point = line.points[i];
            point.seconds.push_back(seconds_of(compiled.kernel(), *inputs[i]));
            point.percent.push_back(100 * point.flops / 1e9 / point.seconds.back() / peak);
            if (point.length >= first_judged)
                judged.push_back(point.percent.back());
        }
        const size_t shorter = line.points.size() - judged.size();
        for (size_t i = 0; i < judged.size(); i++)
            line.points[shorter + i].of_neighbours.push_back(of_neighbours(judged, i));
    }
    return line;
}

// Prints the points that are too slow; returns their number.
int print(const Line &line) {
    std::printf("d %-4d %-7s", line.head_dim, line.causal ? "causal" : "plain");
    if (!line.error.empty()) {
        std::printf("  %s\n", line.error.c_str());
        return 1;
    }
    double most_short = 0, slowest = 1e30;
    std::string slow;
    int count = 0;
    const Point &limit = *std::find_if(line.points.begin(), line.points.end(), [](const Point &p) { return p.length == first_judged; });
    for (const Point &point : line.points) {
        if (point.length < first_judged) {
            std::vector<double> ratios;
            for (size_t i = 0; i < point.seconds.size(); i++)
                ratios.push_back(point.seconds[i] / limit.seconds[i]);
            const double ratio = roof::spread(ratios).median;
            most_short = std::max(most_short, ratio);
            if (ratio > 1) {
                slow += " T" + std::to_string(point.length) + "(time)";
                count++;
            }
            continue;
        }
        const double ratio = roof::spread(point.of_neighbours).median;
        slowest = std::min(slowest, ratio);
        if (ratio < least) {
            slow += " T" + std::to_string(point.length);
            count++;
        }
    }
    std::printf("  least of its neighbours %.3f  T 1-31: at most %.2f of the time of T 32  T 1024: %.1f %% of peak%s%s\n", slowest,
                most_short, roof::spread(line.points.back().percent).median, slow.empty() ? "" : "  SLOW:", slow.c_str());
    std::fflush(stdout);
    return count;
}

Json json_of(const Line &line) {
    Json points = Json::array();
    for (const Point &point : line.points)
        points.push_back({{"length", point.length},
                          {"microseconds", 1e6 * roof::spread(point.seconds).median},
                          {"percent_of_peak", roof::spread(point.percent).median},
                          {"of_neighbours", point.of_neighbours.empty() ? Json() : Json(roof::spread(point.of_neighbours).median)}});
    return {{"head_dim", line.head_dim}, {"causal", line.causal}, {"points", points}};
}

} // namespace

int bench::run_sweep(const Options &options) {
    polyhead::set_num_threads(options.threads);
    roof::Workers workers(options.threads);
    std::printf("B 1, H %d, f32, %d thread%s, %d rounds, no tuning records; FLOPs at the query length rounded up to %d; peak: %s\n", heads,
                options.threads, options.threads == 1 ? "" : "s", options.rounds, static_cast<int>(whole_queries), roof::peak_name());
    int slow = 0;
    Json lines = Json::array();
    for (const bool causal : {false, true})
        for (const int head_dim : head_dims) {
            const Line line = measure(head_dim, causal, options, workers);
            slow += print(line);
            lines.push_back(json_of(line));
        }
    std::printf("%d points below %.2f of the median of their %d nearest lengths, or slower than T 32\n", slow, least,
                static_cast<int>(neighbours));
    if (!options.json.empty())
        std::ofstream(options.json) << Json({{"heads", heads},
                                             {"threads", options.threads},
                                             {"rounds", options.rounds},
                                             {"peak", roof::peak_name()},
                                             {"least", least},
                                             {"lines", lines}})
                                           .dump(1)
                                    << "\n";
    return slow == 0 ? 0 : 1;
}
