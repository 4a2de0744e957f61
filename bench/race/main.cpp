// polyhead_race: runs its kernels on a CUDA device as it is told, one command a line, and answers each with one line of JSON. race.py
// drives it.
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <race_kernels.h>

#include "../../instruments/roof/roof.h"
#include "one_hot.h"
#include "racer.h"

namespace {

using nlohmann::json;

const char *const usage =
    "kernels | device | layouts NAME ROWS KEYS | answers NAME BATCH ROWS KEYS | prepare NAME BATCH ROWS KEYS | time NAME CALLS | release";

class Race {
public:
    explicit Race(int index) : index_(index) {}

    json answer(const std::string &line) {
        std::istringstream words(line);
        std::string command, name;
        words >> command;
        if (command == "kernels")
            return kernels();
        if (command == "release") {
            racers_.clear();
            return json::object();
        }
        const std::string error = open();
        if (!error.empty())
            return {{"error", error}, {"no_device", true}};
        if (command == "device")
            return device();
        words >> name;
        const polyhead::Kernel *kernel = find(name);
        if (!kernel)
            return {{"error", "found '" + line + "', expected " + usage}};
        return of_kernel(command, *kernel, words);
    }

private:
    std::string open() {
        if (device_)
            return "";
        const polyhead::Status status = polyhead::Device::open(polyhead::Api::cuda, index_, &device_);
        return status.ok() ? "" : status.message();
    }

    static json kernels() {
        json all = json::array();
        for (const polyhead::Kernel *kernel : race_kernels) {
            const polyhead::Problem &p = kernel->problem;
            json one;
            one["name"] = kernel->name;
            one["op"] = p.op == POLYHEAD_SDPA ? "sdpa" : "mha";
            one["dtype"] = polyhead::contract::dtype_name(p.dtype);
            one["heads"] = p.num_heads;
            one["kv_heads"] = p.num_kv_heads;
            one["head_dim"] = p.head_dim;
            one["embed_dim"] = p.embed_dim;
            one["causal"] = p.causal != POLYHEAD_NOT_CAUSAL;
            all.push_back(one);
        }
        return {{"kernels", all}};
    }

    json device() const {
        char name[256];
        polyhead_device_name(device_.raw(), name, sizeof name);
        return {{"device", name}};
    }

    static const polyhead::Kernel *find(const std::string &name) {
        for (const polyhead::Kernel *kernel : race_kernels)
            if (name == kernel->name)
                return kernel;
        return nullptr;
    }

    json of_kernel(const std::string &command, const polyhead::Kernel &kernel, std::istringstream &words) {
        if (!kernel.supported(&device_))
            return {{"error", "no variant runs on this device"}, {"unsupported", true}};
        bench::Lengths lengths;
        int calls = 0;
        if (command == "layouts" && words >> lengths.seq_len_q >> lengths.seq_len_kv)
            return {{"error", bench::check_layouts(kernel, device_, lengths.seq_len_q, lengths.seq_len_kv)}};
        if (command == "answers" && words >> lengths.batch >> lengths.seq_len_q >> lengths.seq_len_kv)
            return {{"error", bench::Workload(kernel, lengths, &device_).check()}};
        if (command == "prepare" && words >> lengths.batch >> lengths.seq_len_q >> lengths.seq_len_kv) {
            auto racer = std::make_unique<bench::Racer>(kernel, lengths, device_);
            const json told = {
                {"error", racer->error()}, {"flops", racer->flops()}, {"variant", racer->error().empty() ? racer->variant() : ""}};
            racers_[kernel.name] = std::move(racer);
            return told;
        }
        if (command == "time" && words >> calls && racers_.count(kernel.name))
            return time(*racers_[kernel.name], calls);
        return {{"error", std::string("expected ") + usage}};
    }

    json time(const bench::Racer &racer, int calls) const {
        const double start = roof::now();
        polyhead::Status status;
        for (int i = 0; i < calls && status.ok(); i++)
            status = racer.run();
        const polyhead::Status waited = device_.synchronize();
        const double seconds = (roof::now() - start) / calls;
        return {{"error", !status.ok() ? status.message() : !waited.ok() ? waited.message() : ""}, {"seconds", seconds}};
    }

    int index_;
    polyhead::Device device_;
    std::map<std::string, std::unique_ptr<bench::Racer>> racers_; // closed before the device
};

} // namespace

int main(int argc, char **argv) {
    int index = 0;
    std::string once;
    CLI::App app("Runs candidates of kernels on a CUDA device. Commands, one a line: " + std::string(usage));
    app.add_option("--device", index, "number of the CUDA device")->capture_default_str();
    app.add_option("--commands", once, "these commands, with ; between them, in the place of standard input");
    CLI11_PARSE(app, argc, argv);
    Race race(index);
    std::istringstream given(once);
    std::string line;
    bool failed = false;
    while (std::getline(once.empty() ? std::cin : given, line, once.empty() ? '\n' : ';')) {
        const json told = race.answer(line);
        failed = failed || !told.value("error", "").empty();
        std::printf("%s\n", told.dump().c_str());
        std::fflush(stdout);
    }
    return failed ? 1 : 0;
}
