// polyhead_bench_gpu: every GPU kernel of the table on one device, checked and then timed, as % of that device's measured peak.
#include <cstdio>
#include <fstream>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <kernel_table.h>

#include "../instruments/roof/device_roof.h"
#include "../instruments/roof/roof.h"
#include "workload.h"

namespace {

struct Options {
    std::string device = "opencl", filter, json;
    int rounds = 7;
    int64_t longest = 4096;
};

struct Measured {
    std::string name;
    roof::Spread milliseconds, gflops, percent;
    double gbs = 0, peak_gflops = 0;
};

// What a GPU is asked for: one long sequence, tails everywhere, one decoding step; layers also with a batch.
std::vector<bench::Lengths> shapes_of(const polyhead::Problem &p, int64_t longest) {
    const int64_t q = p.seq_len_q, kv = p.seq_len_kv;
    if (p.op == POLYHEAD_LINEAR)
        return {{1, q ? q : longest, 0}};
    if (q && (kv || (p.op == POLYHEAD_MHA && !p.cross)))
        return {{1, q, kv ? kv : q}};
    std::vector<bench::Lengths> shapes = {{1, q ? q : longest, kv ? kv : longest}};
    if (p.op == POLYHEAD_MHA)
        shapes.push_back({8, q ? q : longest / 8, kv ? kv : longest / 8});
    else if (!q && !kv)
        shapes.insert(shapes.end(), {{2, 197, 197}, {1, 1, longest}});
    return shapes;
}

// Calls one after another, as long as a slice of the peak lasts: seconds of one.
double seconds_of(bench::Workload &workload, const polyhead::Device &device, int calls, std::string *error) {
    const double start = roof::now();
    for (int i = 0; i < calls && error->empty(); i++) {
        const polyhead::Status status = workload.run();
        if (!status.ok())
            *error = status.message();
    }
    const polyhead::Status status = device.synchronize();
    if (!status.ok() && error->empty())
        *error = status.message();
    return (roof::now() - start) / calls;
}

std::string measure(bench::Workload &workload, const polyhead::Device &device, roof::DeviceRoof &roof, int rounds, Measured *out) {
    constexpr double slice = 0.02;
    std::string error;
    const double first = seconds_of(workload, device, 2, &error);
    const int calls = std::max(1, static_cast<int>(slice / std::max(first, 1e-6)));
    std::vector<double> milliseconds, gflops, percent, peaks;
    for (int i = 0; i < rounds && error.empty(); i++) {
        const double peak = roof.fma_gflops(slice), seconds = seconds_of(workload, device, calls, &error);
        milliseconds.push_back(1e3 * seconds);
        gflops.push_back(workload.flops() / seconds / 1e9);
        percent.push_back(peak > 0 ? 100 * gflops.back() / peak : 0);
        peaks.push_back(peak);
    }
    out->milliseconds = roof::spread(milliseconds);
    out->gflops = roof::spread(gflops);
    out->percent = roof::spread(percent);
    out->peak_gflops = roof::spread(peaks).median;
    out->gbs = workload.bytes() / (out->milliseconds.median / 1e3) / 1e9;
    return error;
}

void write_json(const std::string &path, const std::string &device, double copy_gbs, const std::vector<Measured> &all) {
    std::ofstream file(path);
    file << "{\"device\": \"" << device << "\", \"copy_gbs\": " << copy_gbs << ", \"cases\": [";
    for (size_t i = 0; i < all.size(); i++)
        file << (i ? ",\n" : "\n") << "{\"name\": \"" << all[i].name << "\", \"ms\": " << all[i].milliseconds.median
             << ", \"gflops\": " << all[i].gflops.median << ", \"percent\": " << all[i].percent.median
             << ", \"percent_iqr\": " << all[i].percent.iqr() << ", \"gbs\": " << all[i].gbs << ", \"peak_gflops\": " << all[i].peak_gflops
             << "}";
    file << "]}\n";
}

// Every case; the number of those that could not be run.
int bench_all(const Options &options, const polyhead::Device &device, roof::DeviceRoof &roof, std::vector<Measured> *all) {
    const std::regex wanted(options.filter);
    int broken = 0;
    std::printf("%-48s %10s %10s %14s %10s %12s\n", "case", "ms", "GFLOP/s", "% of peak", "GB/s", "peak GFLOP/s");
    for (size_t i = 0; i < kernel_table_count; i++)
        for (const bench::Lengths &shape : shapes_of(kernel_table[i]->problem, options.longest)) {
            Measured measured;
            measured.name = std::string(kernel_table[i]->name) + "/" + bench::to_string(kernel_table[i]->problem, shape);
            if (!std::regex_search(measured.name, wanted))
                continue;
            bench::Workload workload(*kernel_table[i], shape, &device);
            std::string error = workload.check();
            if (error.empty())
                error = measure(workload, device, roof, options.rounds, &measured);
            if (error.empty()) {
                std::printf("%-48s %10.4f %10.1f %7.1f (%4.1f) %10.1f %12.1f\n", measured.name.c_str(), measured.milliseconds.median,
                            measured.gflops.median, measured.percent.median, measured.percent.iqr(), measured.gbs, measured.peak_gflops);
                all->push_back(measured);
            } else {
                std::printf("%-48s ERROR: %s\n", measured.name.c_str(), error.c_str());
                broken++;
            }
            std::fflush(stdout);
        }
    return broken;
}

int run(const Options &options) {
    const size_t colon = options.device.find(':');
    const std::string api = options.device.substr(0, colon);
    const int index = colon == std::string::npos ? 0 : std::atoi(options.device.c_str() + colon + 1);
    std::string error = "expected cuda or opencl, found '" + api + "'";
    std::unique_ptr<roof::DeviceRoof> roof = api == "cuda"     ? roof::cuda_roof(index, &error)
                                             : api == "opencl" ? roof::opencl_roof(index, &error)
                                                               : nullptr;
    if (!roof) {
        std::fprintf(stderr, "polyhead_bench_gpu: %s\n", error.c_str());
        return 1;
    }
    polyhead::Device device;
    const polyhead::Status status = polyhead::Device::open(api == "cuda" ? polyhead::Api::cuda : polyhead::Api::opencl, index, &device,
                                                           roof->context(), roof->stream());
    if (!status.ok()) {
        std::fprintf(stderr, "polyhead_bench_gpu: %s\n", status.message());
        return 1;
    }
    char name[256];
    polyhead_device_name(device.raw(), name, sizeof name);
    const double copy = roof->copy_gbs();
    std::printf("device: %s\nf32 multiply-adds: %.0f GFLOP/s, copies: %.0f GB/s (read and written), measured now\n", name,
                roof->fma_gflops(0.1), copy);
    std::printf("%% of peak: median (interquartile range) of %d rounds, each against the peak measured in it\n\n", options.rounds);
    std::vector<Measured> all;
    const int broken = bench_all(options, device, *roof, &all);
    if (!options.json.empty())
        write_json(options.json, name, copy, all);
    return broken || all.empty() ? 1 : 0;
}

} // namespace

int main(int argc, char **argv) {
    Options options;
    CLI::App app("Times every GPU kernel of the table on one device.");
    app.add_option("--device", options.device, "cuda or opencl, with :N for another device than the first")->capture_default_str();
    app.add_option("--filter", options.filter, "only cases whose names match this regular expression");
    app.add_option("--rounds", options.rounds, "rounds per case")->check(CLI::Range(2, 1000))->capture_default_str();
    app.add_option("--longest", options.longest, "tokens of the long cases, where lengths are free")
        ->check(CLI::Range(8, 1 << 20))
        ->capture_default_str();
    app.add_option("--json", options.json, "also write the results to this file");
    CLI11_PARSE(app, argc, argv);
    return run(options);
}
