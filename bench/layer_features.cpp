// What norms, rotation and gates cost an attention layer: the time with one of them / the time of the layer without.
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "../contract/weight_layout.h"
#include "../instruments/calls/compiled_kernel.h"
#include "../instruments/calls/problems.h"
#include "../instruments/roof/roof.h"
#include "commands.h"
#include "workload.h"

namespace {

using polyhead::Problem;

constexpr int embed_dim = 1024, heads = 16, kv_heads[] = {16, 4};
constexpr int64_t prompt = 512, keys = 1024; // tokens of a prefill; keys of a decoding step, with the new one

struct Feature {
    const char *name;
    double prefill, decode; // at most, beside the weights that it adds
    void (*apply)(Problem *);
};
constexpr Feature features[] = {
    {"nothing", 0, 0, [](Problem *) {}}, // what the place in memory changes
    {"norm per head", 1.03, 1.05, [](Problem *p) { p->query_norm = p->key_norm = POLYHEAD_RMS_NORM; }},
    {"norm over all heads", 1.06, 1.06,
     [](Problem *p) {
         p->query_norm = p->key_norm = POLYHEAD_RMS_NORM;
         p->norm_of_projection = 1;
     }},
    {"rotation", 1.03, 1.05, [](Problem *p) { p->rope = POLYHEAD_ROPE_HALF_SPLIT; }},
    {"norm and rotation", 0, 0,
     [](Problem *p) {
         p->query_norm = p->key_norm = POLYHEAD_RMS_NORM;
         p->rope = POLYHEAD_ROPE_HALF_SPLIT;
     }},
    {"gate per head", 1.03, 1.05, [](Problem *p) { p->gate = POLYHEAD_GATE_OF_HEADS; }},
    {"gate per entry", 1.03, 1.05, [](Problem *p) { p->gate = POLYHEAD_GATE_OF_ENTRIES; }},
};

// A layer with one shape, ready to be timed.
struct Layer {
    polyhead::test::CompiledKernel compiled;
    polyhead::Kernel kernel;
    std::unique_ptr<bench::Workload> call;
    std::string error;
    std::vector<double> seconds; // of this round

    Layer(const Problem &problem, const bench::Lengths &lengths) : compiled(problem), kernel(compiled.kernel()), error(compiled.error()) {
        if (error.empty()) {
            place(lengths);
            error = call->check();
        }
    }
    // Gives the layer its memory.
    void place(const bench::Lengths &lengths) { call = std::make_unique<bench::Workload>(kernel, lengths); }
    // A first call that does not count finds what the layers before it left in the caches.
    void time(int calls) {
        (void)call->run();
        const double start = roof::now();
        for (int i = 0; i < calls; i++)
            (void)call->run();
        seconds.push_back((roof::now() - start) / calls);
    }
};

double weight_bytes(const Problem &problem) {
    return static_cast<double>(polyhead::contract::weight_layout(problem).bytes);
}

Problem layer(int of_keys, bool decodes) {
    Problem p = polyhead::test::mha_problem(embed_dim, heads, of_keys);
    p.causal = POLYHEAD_BOTTOM_RIGHT;
    p.cache = decodes;
    return p;
}

// All layers in turns, so that what changes meanwhile meets all alike. Each turn begins with another one, and none comes twice in a row:
// after a turn of its own a layer finds more of its weights in the caches. Each round gives them other memory.
bool measure(int of_keys, bool decodes, int threads, int rounds) {
    constexpr int turns = 3, decode_calls = 20;
    const Problem plain = layer(of_keys, decodes);
    const bench::Lengths lengths = {1, decodes ? 1 : prompt, decodes ? keys : prompt, 0};
    std::vector<std::unique_ptr<Layer>> layers;
    layers.push_back(std::make_unique<Layer>(plain, lengths));
    std::vector<Problem> problems;
    for (const Feature &feature : features) {
        problems.push_back(plain);
        feature.apply(&problems.back());
        layers.push_back(std::make_unique<Layer>(problems.back(), lengths));
    }
    for (const auto &one : layers)
        if (!one->error.empty()) {
            std::fprintf(stderr, "polyhead_bench: %s\n", one->error.c_str());
            return false;
        }
    std::vector<std::vector<double>> ratios(std::size(features));
    std::vector<double> milliseconds;
    for (int round = 0; round < rounds; round++) {
        for (const auto &one : layers) {
            one->seconds.clear();
            if (round > 0)
                one->call.reset();
        }
        for (size_t i = 0; i < layers.size() && round > 0; i++) // in the first round they have that in which they were checked
            layers[(i + size_t(round)) % layers.size()]->place(lengths);
        for (int turn = 0; turn < 2 * turns; turn++)
            for (size_t i = 0; i < layers.size(); i++)
                layers[(size_t(turn) + i) % layers.size()]->time(decodes ? decode_calls : 1);
        const auto shortest = [](const std::vector<double> &all) { return *std::min_element(all.begin(), all.end()); };
        const double without = shortest(layers[0]->seconds);
        milliseconds.push_back(1e3 * without);
        for (size_t i = 0; i < ratios.size(); i++)
            ratios[i].push_back(shortest(layers[i + 1]->seconds) / without);
    }
    std::printf("\n%s, %d key/value heads, %d threads: %.3f ms without\n", decodes ? "a decoding step" : "a prefill", of_keys, threads,
                roof::spread(milliseconds).median);
    bool all = true;
    for (size_t i = 0; i < ratios.size(); i++) {
        const Feature &feature = features[i];
        const roof::Spread spread = roof::spread(ratios[i]);
        const double weights = weight_bytes(problems[i]) / weight_bytes(plain),
                     line = (decodes ? feature.decode : feature.prefill) * weights;
        const bool within = line == 0 || spread.median <= line + spread.iqr() / 2;
        std::printf("  %-20s  %6.3f (%5.3f)", feature.name, spread.median, spread.iqr());
        std::printf(line > 0 ? "  %5.3f%s\n" : "\n", line, within ? "" : "  ABOVE");
        all = all && within;
    }
    std::fflush(stdout);
    return all;
}

} // namespace

int bench::run_layer_features(const Options &options) {
    std::printf("a layer of width %d, %d heads of %d, f32, causal: time with a feature / time without, medians (interquartile range) of\n"
                "%d rounds; at most, which counts the weights that a gate adds; each call is checked against float64 first\n",
                embed_dim, heads, embed_dim / heads, options.rounds);
    bool all = true;
    for (const int threads : thread_counts(most_threads(options))) {
        polyhead::set_num_threads(threads);
        for (const bool decodes : {false, true})
            for (const int of_keys : kv_heads)
                all = measure(of_keys, decodes, threads, options.rounds) && all;
    }
    return all ? 0 : 1;
}
