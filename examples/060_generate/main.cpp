// Generates four texts with continuous batching: sequences join when there is room and leave when they are done, prompts come in parts
// beside the steps of the others, and every step is compared with the whole text in float64.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

#include "../../instruments/roof/roof.h"
#include "decoder.h"
#include "decoder_f64.h"

using namespace generate;

namespace {

constexpr int32_t most_prompt_tokens = 64; // of one sequence in one step
constexpr double steps_of_round = 32;

struct Request {
    int joins; // in this step
    int prompt, wanted;
    Sequence sequence;
    std::vector<std::vector<float>> logits; // of each generated token
    bool prefill() const { return sequence.cached + 1 < static_cast<int32_t>(sequence.tokens.size()); }
    bool done() const { return static_cast<int>(logits.size()) >= wanted; }
};

// Steps without prompts, with the rate at which memory was read right after them.
struct Round {
    double seconds = 0, bytes = 0, tokens = 0, steps = 0;
};

struct Times {
    double prefill_seconds = 0, prefill_tokens = 0;
    Round round;
    std::vector<double> tokens_per_second, milliseconds, gbs, percent, read;

    void end_round(roof::Workers &workers) {
        read.push_back(roof::read_gbs(workers));
        tokens_per_second.push_back(round.tokens / round.seconds);
        milliseconds.push_back(1e3 * round.seconds / round.steps);
        gbs.push_back(round.bytes / 1e9 / round.seconds);
        percent.push_back(100 * gbs.back() / read.back());
        round = Round();
    }
};

std::vector<Request> requests(int steps) {
    const struct {
        int joins, prompt, wanted;
    } plan[] = {{0, 100, steps}, {0, 37, steps / 2}, {steps / 8, 5, steps * 3 / 4}, {steps / 4, 130, steps / 2}};
    std::vector<Request> all;
    std::mt19937_64 random(2);
    for (const auto &one : plan) {
        Request request{one.joins, one.prompt, std::max(one.wanted, 1), {}, {}};
        for (int i = 0; i < one.prompt; i++)
            request.sequence.tokens.push_back(static_cast<int32_t>(random() % vocabulary));
        all.push_back(std::move(request));
    }
    return all;
}

void show_progress(const std::vector<Request> &all) {
    if (!isatty(fileno(stderr)))
        return;
    size_t done = 0, wanted = 0;
    for (const Request &request : all) {
        done += request.logits.size();
        wanted += static_cast<size_t>(request.wanted);
    }
    constexpr size_t width = 40;
    const std::string bar(width * done / std::max<size_t>(wanted, 1), '#');
    std::fprintf(stderr, "\r[%-*s] %zu of %zu tokens%s", static_cast<int>(width), bar.c_str(), done, wanted, done == wanted ? "\n" : "");
}

// One step for the sequences that are there. False and a message when it is refused.
bool step(Decoder *decoder, std::vector<Request> *all, int number, Times *times) {
    std::vector<Request *> active;
    std::vector<Sequence *> batch;
    std::vector<int32_t> counts;
    bool prefill = false;
    double bytes = decoder->weight_bytes();
    for (Request &request : *all) {
        if (request.joins > number || request.done())
            continue;
        Sequence &sequence = request.sequence;
        const int32_t left = static_cast<int32_t>(sequence.tokens.size()) - sequence.cached;
        active.push_back(&request);
        batch.push_back(&sequence);
        counts.push_back(std::min(left, most_prompt_tokens));
        prefill = prefill || request.prefill();
        bytes += Decoder::cache_bytes(sequence.cached + counts.back());
    }
    std::vector<float> logits;
    const double start = roof::now();
    const polyhead::Status status = batch.empty() ? polyhead::Status() : decoder->step(batch, counts, &logits);
    const double seconds = roof::now() - start;
    if (!status.ok()) {
        std::printf("step %d: %s\n", number, status.message());
        return false;
    }
    for (size_t b = 0; b < active.size(); b++) {
        Request &request = *active[b];
        times->prefill_tokens += prefill ? counts[b] : 0;
        if (request.sequence.cached < static_cast<int32_t>(request.sequence.tokens.size()))
            continue; // a part of the prompt is left
        const auto row = logits.begin() + static_cast<std::ptrdiff_t>(b * vocabulary);
        request.logits.emplace_back(row, row + vocabulary);
        request.sequence.tokens.push_back(static_cast<int32_t>(std::max_element(row, row + vocabulary) - row));
        if (request.done() && !decoder->leave(&request.sequence).ok())
            return false;
    }
    if (prefill) {
        times->prefill_seconds += seconds;
    } else if (!batch.empty()) {
        times->round.seconds += seconds;
        times->round.bytes += bytes;
        times->round.tokens += static_cast<double>(batch.size());
        times->round.steps++;
    }
    return true;
}

// The largest error of a logit over all steps, relative to the largest logit of its step.
double largest_error(const Model &model, const std::vector<Request> &all) {
    double worst = 0;
    for (const Request &request : all) {
        std::vector<int32_t> tokens = request.sequence.tokens;
        tokens.pop_back(); // nothing was computed from the last one
        const std::vector<double> exact = exact_logits(model, tokens);
        for (size_t i = 0; i < request.logits.size(); i++) {
            const double *row = exact.data() + (static_cast<size_t>(request.prompt) - 1 + i) * vocabulary;
            double error = 0, largest = 0;
            for (size_t n = 0; n < vocabulary; n++) {
                error = std::fabs(request.logits[i][n] - row[n]) <= error ? error : std::fabs(request.logits[i][n] - row[n]); // keeps NaN
                largest = std::max(largest, std::fabs(row[n]));
            }
            worst = error / largest <= worst ? worst : error / largest;
        }
    }
    return worst;
}

} // namespace

int main(int argc, char **argv) {
    int steps = 256, threads = 0;
    CLI::App app("Generates four texts with a small random model in the shape of Llama, and compares every step with float64.");
    app.add_option("--steps", steps, "tokens of the longest text (default 256)")->check(CLI::Range(1, 800));
    app.add_option("--threads", threads, "threads (default: all)")->check(CLI::Range(1, 256));
    CLI11_PARSE(app, argc, argv);
    if (threads > 0)
        polyhead::set_num_threads(threads);

    const Model model = random_model(1);
    Decoder decoder(model, max_seq_len);
    if (!decoder.status().ok()) {
        std::printf("%s\n", decoder.status().message());
        return 1;
    }
    std::printf(
        "%lld layers, embed_dim %lld, %lld heads, %lld key/value heads of %lld; weights of %.0f MB; pages of %lld tokens; %d threads\n",
        static_cast<long long>(num_layers), static_cast<long long>(embed_dim), static_cast<long long>(num_heads),
        static_cast<long long>(num_kv_heads), static_cast<long long>(head_dim), decoder.weight_bytes() / 1e6,
        static_cast<long long>(page_size), polyhead::num_threads());
    std::vector<Request> all = requests(steps);
    Times times;
    roof::Workers workers(polyhead::num_threads());
    for (int number = 0; !std::all_of(all.begin(), all.end(), [](const Request &r) { return r.done(); }); number++) {
        if (!step(&decoder, &all, number, &times))
            return 1;
        if (times.round.steps >= steps_of_round)
            times.end_round(workers);
        show_progress(all);
    }
    if (times.read.empty() && times.round.steps > 0)
        times.end_round(workers);
    std::printf("steps with parts of prompts: %.0f tokens, %.0f tokens/s\n", times.prefill_tokens,
                times.prefill_tokens / times.prefill_seconds);
    if (!times.read.empty()) {
        const auto median = [](const std::vector<double> &values) { return roof::spread(values).median; };
        std::printf("other steps: %.0f tokens/s, %.2f ms; weights and keys are read at %.1f GB/s, %.0f %% of the rate of memory, %.1f GB/s "
                    "(medians of %zu rounds)\n",
                    median(times.tokens_per_second), median(times.milliseconds), median(times.gbs), median(times.percent),
                    median(times.read), times.read.size());
    }
    const double error = largest_error(model, all), most = 1e-4;
    std::printf("largest error of a logit against float64: %.1e of the largest logit, allowed %.0e: %s\n", error, most,
                error <= most ? "ok" : "too much");
    return error <= most ? 0 : 1;
}
