// How fast gradients of attention are: % of the peak, beside the forward kernel, on two threads, and what their features cost.
#include <cstdio>
#include <functional>
#include <iterator>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "../instruments/roof/roof.h"
#include "commands.h"
#include "linear_backward.h"
#include "training_calls.h"

namespace bench {
namespace {

struct Line {
    const char *name;
    TrainingShape shape;
    double avx512, avx2; // % of the peak, one thread, at least, on AMD's CPUs; 0: no floor
    double growth;       // to all threads, of that of the peak, at least; 0: no floor
};
constexpr Line lines[] = {
    {"h12_d64_t512", {1, 12, 12, 512, 64, false}, 83, 78, 0.92},     {"h12_d64_t512_causal", {1, 12, 12, 512, 64, true}, 72, 0, 0.92},
    {"h12_d64_t2048", {1, 12, 12, 2048, 64, false}, 87, 79, 0.92},   {"h12_d64_t2048_causal", {1, 12, 12, 2048, 64, true}, 81, 66, 0.92},
    {"h12_d128_t1024", {1, 12, 12, 1024, 128, false}, 85, 76, 0.92}, {"h12_d128_t1024_causal", {1, 12, 12, 1024, 128, true}, 78, 0, 0.92},
    {"h32_kv8_d128_t512", {1, 32, 8, 512, 128, false}, 0, 0, 0},     {"h32_kv8_d128_t512_causal", {1, 32, 8, 512, 128, true}, 0, 0, 0},
    {"b8_h12_d64_t128", {8, 12, 12, 128, 64, false}, 0, 0, 0},       {"b8_h12_d64_t128_causal", {8, 12, 12, 128, 64, true}, 0, 0, 0},
    {"h12_d64_t197", {1, 12, 12, 197, 64, false}, 0, 0, 0},          {"h12_d64_t197_causal", {1, 12, 12, 197, 64, true}, 0, 0, 0},
    {"b64_h3_d32_t49", {64, 3, 3, 49, 32, false}, 0, 0, 0},          {"b16_h4_d32_t144", {16, 4, 4, 144, 32, false}, 0, 0, 0},
    {"h1_d64_t2048", {1, 1, 1, 2048, 64, false}, 0, 0, 0.95},
};
constexpr double of_forward = 0.95; // of its share of the peak, at least, on other CPUs

struct Cost {
    const char *name;
    double most, most_avx2; // 0: no ceiling
};
constexpr Cost costs[] = {{"dropout", 1.15, 1.2},  {"forward dropout", 1.3, 1.4}, {"bias", 0, 0},
                          {"bias gradient", 0, 0}, {"table gradient", 1.2, 1.2},  {"index gradient", 1.2, 1.2}};

bool avx512() {
    return (polyhead_cpu_features() & POLYHEAD_CPU_AVX512_SKYLAKE) != 0;
}

bool amd() {
#if defined(__x86_64__)
    return __builtin_cpu_is("amd") != 0;
#else
    return false;
#endif
}

// What the rounds gave. Ratios are within rounds.
struct Measured {
    std::vector<double> percent, of_forward, milliseconds, growth, of_plain, others;
    std::vector<double> costs[std::size(bench::costs)];
};

// All calls of a line.
struct Calls {
    TrainingInputs inputs;
    TrainingCalls own, plain, dropout, bias, bias_gradient, table, table_gradient, index, index_gradient;
    std::string error;

    explicit Calls(const TrainingShape &shape)
        : inputs(shape), own(inputs, shape.causal, Extra::none), plain(inputs, false, Extra::none),
          dropout(inputs, shape.causal, Extra::dropout), bias(inputs, shape.causal, Extra::bias),
          bias_gradient(inputs, shape.causal, Extra::bias_gradient), table(inputs, shape.causal, Extra::table),
          table_gradient(inputs, shape.causal, Extra::table_gradient), index(inputs, shape.causal, Extra::index),
          index_gradient(inputs, shape.causal, Extra::index_gradient) {
        for (const TrainingCalls *one : {&own, &plain, &dropout, &bias, &bias_gradient, &table, &table_gradient, &index, &index_gradient})
            error = error.empty() ? one->error() : error;
    }
};

Measured measure(const Calls &calls, const TrainingShape &shape, int threads, int rounds) {
    enum { forward, backward, plain, dropout_forward, dropout, bias, bias_gradient, table, table_gradient, index, index_gradient };
    const std::vector<std::function<void()>> all = {
        [&] { calls.own.forward(); },
        [&] { calls.own.backward(); },
        [&] { calls.plain.backward(); },
        [&] { calls.dropout.forward(); },
        [&] { calls.dropout.backward(); },
        [&] { calls.bias.backward(); },
        [&] { calls.bias_gradient.backward(); },
        [&] { calls.table.backward(); },
        [&] { calls.table_gradient.backward(); },
        [&] { calls.index.backward(); },
        [&] { calls.index_gradient.backward(); },
    };
    const std::vector<std::function<void()>> one = {all[backward]};
    roof::Workers alone(1), together(threads);
    Measured m;
    for (int i = 0; i < rounds; i++) {
        polyhead::set_num_threads(1);
        const roof::Round round = roof::measure_round(alone, all, 0.03, 3);
        const auto &s = round.seconds;
        const double speed = shape.backward_flops() / 1e9 / s[backward], share = speed / round.peak_gflops;
        m.percent.push_back(100 * share);
        m.milliseconds.push_back(1e3 * s[backward]);
        m.others.push_back(round.others_busy);
        m.of_forward.push_back(share / (shape.forward_flops() / 1e9 / s[forward] / round.peak_gflops));
        TrainingShape whole = shape;
        whole.causal = false;
        m.of_plain.push_back(speed / (whole.backward_flops() / 1e9 / s[plain]));
        const double ratios[] = {s[dropout] / s[backward],   s[dropout_forward] / s[forward], s[bias] / s[backward],
                                 s[bias_gradient] / s[bias], s[table_gradient] / s[table],    s[index_gradient] / s[index]};
        for (size_t j = 0; j < std::size(ratios); j++)
            m.costs[j].push_back(ratios[j]);
        if (threads > 1) {
            polyhead::set_num_threads(threads);
            const roof::Round more = roof::measure_round(together, one, 0.03, 3);
            m.growth.push_back(shape.backward_flops() / 1e9 / more.seconds[0] / more.peak_gflops / share);
        }
    }
    return m;
}

// Prints a median, which has to be at least or at most so much; false where it is not, by more than half of the interquartile range.
bool print(const std::vector<double> &values, int digits, double least, double most = 0) {
    const roof::Spread s = roof::spread(values);
    if (values.empty()) {
        std::printf("  %15s", "-");
        return true;
    }
    const bool within = (least == 0 || s.median >= least - s.iqr() / 2) && (most == 0 || s.median <= most + s.iqr() / 2);
    std::printf("  %6.*f (%5.*f)%c", digits, s.median, digits, s.iqr(), within ? ' ' : '!');
    return within;
}

bool run_line(const Line &line, int threads, int rounds) {
    std::printf("%-26s", line.name);
    std::fflush(stdout);
    polyhead::set_num_threads(threads);
    const Calls calls(line.shape);
    if (!calls.error.empty()) {
        std::printf("  %s\n", calls.error.c_str());
        return false;
    }
    const Measured m = measure(calls, line.shape, threads, rounds);
    const bool wide = avx512();
    bool kept = print(m.percent, 1, !amd() ? 0 : wide ? line.avx512 : line.avx2);
    kept = print(m.of_forward, 3, amd() ? 0 : of_forward) && kept;
    kept = print(m.growth, 3, line.growth) && kept;
    (void)print(line.shape.causal ? m.of_plain : std::vector<double>(), 3, 0);
    for (size_t i = 0; i < std::size(costs); i++)
        kept = print(m.costs[i], 3, 0, wide ? costs[i].most : costs[i].most_avx2) && kept;
    std::printf("  %9.3f  %.2f\n", roof::spread(m.milliseconds).median, roof::spread(m.others).median);
    std::fflush(stdout);
    return kept;
}

} // namespace

int run_backward(const Options &options) {
    const std::regex wanted(options.filter);
    const int threads = most_threads(options);
    std::printf(
        "gradients of attention, f32, one thread (%s); medians (interquartile ranges) of %d rounds, all ratios within rounds; !: less,\n"
        "or more, than was promised. The last head of each call is checked against float64 first\n"
        "  of forward: share of the peak / that of the forward kernel of the same shape; growth: share on %d threads / share on one;\n"
        "  of plain: speed per useful FLOP / that without causal; times: with dropout / without, with a bias [H,T,T] / without, with its\n"
        "  gradient / with the bias alone; with the gradient of a table of distances, or of one by an index [T,T], / with the table "
        "alone\n",
        roof::peak_name(), options.rounds, threads);
    std::printf("%-26s  %-15s  %-15s  %-15s  %-15s", "", "% of peak", "of forward", "growth", "of plain");
    for (const Cost &cost : costs)
        std::printf("  %-15.15s", cost.name);
    std::printf("  %9s  others busy\n", "ms");
    int broken = 0;
    for (const Line &line : lines)
        if (std::regex_search(line.name, wanted))
            broken += run_line(line, threads, options.rounds) ? 0 : 1;
    broken += run_linear_backward(wanted, options.rounds, amd());
    return broken ? 1 : 0;
}

} // namespace bench
