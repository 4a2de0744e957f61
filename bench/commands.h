// The commands of polyhead_bench. Each prints what it measured, and returns 0 when every promise that it knows is kept.
#ifndef BENCH_COMMANDS_H
#define BENCH_COMMANDS_H

#include <string>
#include <vector>

#include <polyhead/polyhead.h>

namespace bench {

struct Options {
    std::string filter, json, against;
    int threads = 0, rounds = 7; // threads 0: not given, and the command measures several
    bool pairs = false, no_records = false;
    std::vector<std::string> google_benchmark; // its own flags
    // Of the autoschedulers.
    std::string case_name, frame, autoscheduler;
    std::vector<std::string> parameters;
    bool list = false;
};

// Those that were asked for, else all.
inline int most_threads(const Options &options) {
    return options.threads > 0 ? options.threads : polyhead::num_threads();
}

// One thread, and as many as were asked for.
inline std::vector<int> thread_counts(int threads) {
    return threads > 1 ? std::vector<int>{1, threads} : std::vector<int>{1};
}

// What a call costs beside its kernel.
int run_calls(const Options &options);
int run_kernels(const Options &options);
int run_ratio(const Options &options);
int run_storage(const Options &options);
// Decoding: a step against a plain read of the cache; what the capacity of the cache, pages and value_in_key change; a whole layer.
int run_decode(const Options &options);
int run_capacity(const Options &options);
int run_pages(const Options &options);
int run_latent(const Options &options);
int run_layer_step(const Options &options);
// What norms, rotation and gates cost a layer.
int run_layer_features(const Options &options);
// Packed tokens against equal lengths, and against a batch.
int run_ragged(const Options &options);
int run_append(const Options &options);
// Gradients: % of the peak, beside the forward kernel, and what dropout, biases and causal cost.
int run_backward(const Options &options);
int run_features(const Options &options);
int run_sweep(const Options &options);
// One case under one autoscheduler; prints one JSON object.
int run_autoschedulers(const Options &options);

} // namespace bench
#endif
