// all-MiniLM-L6-v2 over token ids: encodes the sentences, compares them, and measures the generated attention layer.
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "report.h"

namespace {

struct Options {
    std::string model, ids, lengths, texts, check, device, dtype = "f32";
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
    const bool bf16 = options.dtype == "bf16";
    minilm::Kernels kernels = minilm::cpu_kernels(bf16 ? polyhead::DType::bf16 : polyhead::DType::f32);
    if (!kernels.attention)
        return fail("--dtype bf16: this program was built without bf16 kernels.");
    if (!options.device.empty()) {
        error = bf16 ? "--device: found with --dtype bf16, expected one of them." : minilm::gpu_kernels(options.device, &device, &kernels);
        if (!error.empty())
            return fail(error);
        std::printf("Attention and linear layers run on %s\n\n", minilm::name_of(device).c_str());
    }
    minilm::Encoder encoder, f32;
    minilm::Encoded encoded, f32_encoded;
    error = encoder.init(model, kernels);
    if (error.empty() && !options.check.empty()) {
        error = minilm::check_against(options.check, encoder, batch);
        return error.empty() ? 0 : fail(error);
    }
    if (error.empty())
        error = encoder.run(batch, &encoded);
    std::vector<minilm::Run> runs = {{&encoder, &encoded}};
    if (error.empty() && bf16) { // beside f32
        runs.insert(runs.begin(), {&f32, &f32_encoded});
        error = f32.init(model, minilm::cpu_kernels(polyhead::DType::f32));
        if (error.empty())
            error = f32.run(batch, &f32_encoded);
    }
    if (!error.empty())
        return fail(error);
    minilm::print_similarity(batch, encoded, read_lines(options.texts));
    for (const minilm::Run &one : runs)
        minilm::print_errors(*one.encoder, minilm::errors_against_f64(model, batch, *one.encoded));
    error = minilm::print_speed(runs, batch, options.rounds);
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
    app.add_option("--dtype", options.dtype, "storage type of the kernels")->check(CLI::IsMember({"f32", "bf16"}))->capture_default_str();
    app.add_option("--threads", options.threads, "threads (default: all)")->check(CLI::Range(1, 1024));
    app.add_option("--rounds", options.rounds, "rounds of the time measurement")->check(CLI::Range(1, 1000));
    CLI11_PARSE(app, argc, argv);
    return run(options);
}
