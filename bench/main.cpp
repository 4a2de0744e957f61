// polyhead_bench: what ./polyhead bench measures, one command each.
#include <cstring>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "commands.h"

namespace {

using bench::Options;

struct Command {
    const char *name, *text;
    int (*run)(const Options &);
    const char *options; // beside threads and rounds
    int threads = 0;     // that it takes where none are given; 0: see Options
};
constexpr Command commands[] = {
    {"kernels", "every kernel of the table, as % of the peak; flags of Google Benchmark (--benchmark_...) are passed on",
     bench::run_kernels, "filter json benchmark"},
    {"calls", "what a call costs beside its kernel, and beside the threads of another pool", bench::run_calls, ""},
    {"ratio", "the promised speeds: % of the peak, growth with threads, free lengths against fixed ones", bench::run_ratio,
     "filter no-tuned"},
    {"storage", "kernels of bf16 and f16 beside those of f32", bench::run_storage, ""},
    {"decode", "how fast a decoding step reads its cache, compared with a plain read", bench::run_decode, ""},
    {"capacity", "what the capacity of a cache costs a decoding step", bench::run_capacity, ""},
    {"pages", "what pages cost a decoding step, compared with a contiguous cache", bench::run_pages, ""},
    {"latent", "what value_in_key saves in a decoding step of latent attention", bench::run_latent, ""},
    {"layer-step", "one token through a layer with a cache of 4096 keys, compared with a plain read of weights and cache",
     bench::run_layer_step, "", 1},
    {"layer-features", "what norms, rotation and gates cost an attention layer", bench::run_layer_features, ""},
    {"ragged", "how fast packed tokens are, compared with equal lengths", bench::run_ragged, ""},
    {"append", "what packed tokens cost an append, compared with a batch", bench::run_append, ""},
    {"backward", "gradients of attention: % of the peak, beside the forward kernel, and what their features cost", bench::run_backward,
     "filter"},
    {"features", "every feature of attention, and every pair of two, against the plain kernel", bench::run_features,
     "filter json pairs against", 1},
    {"sweep", "attention at every query length to 160 and every seventh to 1024", bench::run_sweep, "json", 1},
    {"autoschedulers", "one case under one of Halide's autoschedulers beside our schedule", bench::run_autoschedulers, "autoscheduler", 1},
};

void add_options(CLI::App *command, const std::string &names, Options *options) {
    const auto has = [&](const char *name) { return names.find(name) != std::string::npos; };
    command->add_option("--threads", options->threads, "threads of the kernels")->check(CLI::Range(1, 1024));
    command->add_option("--rounds", options->rounds, "rounds of each measurement")->check(CLI::Range(2, 1000))->capture_default_str();
    if (has("filter"))
        command->add_option("--filter", options->filter, "only cases whose names match this regular expression");
    if (has("json"))
        command->add_option("--json", options->json, "also write the results to this file");
    if (has("no-tuned"))
        command->add_flag("--no-tuned", options->no_records, "default tilings, whatever tuning records say");
    if (has("pairs"))
        command->add_flag("--pairs", options->pairs, "also every pair of features that a problem can have");
    if (has("against"))
        command->add_option("--against", options->against, "library of the plain kernel of another checkout (plain_of_checkout.cpp)");
    if (has("benchmark"))
        command->allow_extras();
    if (has("autoscheduler")) {
        command->add_flag("--list", options->list, "print the cases and their formulations as JSON");
        command->add_option("--case", options->case_name, "the case, by name");
        command->add_option("--frame", options->frame, "formulation that the autoscheduler is given");
        command->add_option("--autoscheduler", options->autoscheduler, "Mullapudi2016, Adams2019 or Li2018");
        command->add_option("--parameter", options->parameters, "FIELD=VALUE of the autoscheduler; may be repeated");
    }
}

} // namespace

int main(int argc, char **argv) {
    Options options;
    CLI::App app("Measures kernels, which it has compiled or takes from the cache on the disk.");
    app.require_subcommand(1);
    int status = 0;
    for (const Command &command : commands) {
        CLI::App *added = app.add_subcommand(command.name, command.text);
        add_options(added, command.options, &options);
        added->callback([&options, &status, &command, added] {
            options.google_benchmark = added->remaining();
            options.threads = options.threads > 0 ? options.threads : command.threads;
            status = command.run(options);
        });
    }
    // Options alone are those of the first command, as in the programs of older checkouts, which bench against runs.
    std::vector<const char *> words(argv, argv + argc);
    if (argc < 2 || (argv[1][0] == '-' && std::strcmp(argv[1], "-h") != 0 && std::strcmp(argv[1], "--help") != 0))
        words.insert(words.begin() + 1, commands[0].name);
    CLI11_PARSE(app, static_cast<int>(words.size()), words.data());
    return status;
}
