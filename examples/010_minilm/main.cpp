// all-MiniLM-L6-v2 over token ids: encodes the sentences, compares them, and measures the generated attention layer.
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "report.h"

namespace {

struct Options {
    std::string model, ids, lengths, texts, check, device;
    int threads = 0, rounds = 7;
};

int fail(const std::string &message) {
    std::fprintf(stderr, "example_minilm: %s\n", message.c_str());
    return 1;
}

std::vector<std::string> read_lines(const std::string &path) {
    std::vector<std::string> lines;
    std::ifstream stream(path);
    for (std::string line; std::getline(stream, line);)
        lines.push_back(line);
    return lines;
}

int run(const Options &options) {
    if (options.threads > 0)
        polyhead::set_num_threads(options.threads);
    examples::SafeTensors file;
    minilm::Model model;
    minilm::Batch batch;
    std::string error = file.open(options.model);
    if (error.empty())
        error = minilm::load_model(file, &model);
    if (error.empty())
        error = minilm::load_batch(options.ids, options.lengths, &batch);
    if (!error.empty())
        return fail(error);

    polyhead::Device device; // before the encoder, whose weights may lie on it
    minilm::Kernels kernels = minilm::cpu_kernels();
    if (!options.device.empty()) {
        error = minilm::gpu_kernels(options.device, &device, &kernels);
        if (!error.empty())
            return fail(error);
        std::printf("Attention and linear layers run on %s\n\n", minilm::name_of(device).c_str());
    }
    minilm::Encoder encoder;
    minilm::Encoded encoded;
    error = encoder.init(model, kernels);
    if (error.empty() && !options.check.empty()) {
        error = minilm::check_against(options.check, encoder, batch);
        return error.empty() ? 0 : fail(error);
    }
    if (error.empty())
        error = encoder.run(batch, &encoded);
    if (!error.empty())
        return fail(error);
    minilm::print_similarity(batch, encoded, read_lines(options.texts));
    minilm::print_errors(minilm::errors_against_f64(model, batch, encoded));
    error = minilm::print_speed(encoder, batch, encoded, options.rounds);
    return error.empty() ? 0 : fail(error);
}

} // namespace

int main(int argc, char **argv) {
    Options options;
    CLI::App app("Runs the all-MiniLM-L6-v2 sentence encoder with generated attention kernels; run.py makes the token ids.");
    app.add_option("--model", options.model, "model.safetensors")->required();
    app.add_option("--ids", options.ids, "token ids, int32 [sentences, tokens] .npy, padded at the end")->required();
    app.add_option("--lengths", options.lengths, "real tokens of each sentence, int32 [sentences] .npy")->required();
    app.add_option("--texts", options.texts, "the sentences, one per line, for the table");
    app.add_option("--check", options.check, "directory of reference .npy files to hold the run against");
    app.add_option("--device", options.device, "cuda or opencl, with :INDEX if it is not the first device (default: the CPU)");
    app.add_option("--threads", options.threads, "threads (default: all)")->check(CLI::Range(1, 1024));
    app.add_option("--rounds", options.rounds, "rounds of the time measurement")->check(CLI::Range(1, 1000));
    CLI11_PARSE(app, argc, argv);
    return run(options);
}
