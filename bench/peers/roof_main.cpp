// polyhead_roof: answers each line of JSON {"kind": "fma" | "read" | "copy", "seconds": s} with {"rate": GFLOP/s or GB/s of all threads}.
// "fma" is the peak of the type: multiply-adds of f32, or for bf16 dot products of pairs where the machine has them.
#include <csignal>
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <polyhead/c_problem.h>
#include <sched.h>
#include <sys/prctl.h>

#include "../../instruments/roof/roof.h"

namespace {

using Json = nlohmann::json;

// The first cores that this process may use: the same that a library gets.
void confine(int threads) {
    cpu_set_t allowed, wanted;
    CPU_ZERO(&wanted);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&wanted) < threads; cpu++)
        if (CPU_ISSET(cpu, &allowed))
            CPU_SET(cpu, &wanted);
    sched_setaffinity(0, sizeof wanted, &wanted);
}

double rate(roof::Workers &workers, roof::Peak peak, const std::string &kind, double seconds) {
    if (kind == "fma")
        return roof::peak_gflops(workers, seconds, peak);
    return kind == "read" ? roof::read_gbs(workers) : roof::copy_gbs(workers);
}

Json answer(roof::Workers &workers, roof::Peak peak, const Json &order) {
    if (!order.is_object() || !order.contains("kind") || !order["kind"].is_string() || !order.contains("seconds") ||
        !order["seconds"].is_number())
        return {{"error", R"(expected {"kind": "fma", "read" or "copy", "seconds": number})"}};
    return {{"rate", rate(workers, peak, order["kind"].get<std::string>(), order["seconds"].get<double>())}};
}

} // namespace

int main(int argc, char **argv) {
    int threads = 1;
    std::string dtype = "f32";
    CLI::App app("Measures the roofs of this machine as often as it is asked to on the standard input.");
    app.add_option("--threads", threads, "threads that work together")->check(CLI::Range(1, 256))->capture_default_str();
    app.add_option("--dtype", dtype, "storage type whose peak is meant")
        ->check(CLI::IsMember({"f32", "f16", "bf16"}))
        ->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    prctl(PR_SET_PDEATHSIG, SIGKILL); // ends with the bench, also while it is stopped
    std::signal(SIGINT, SIG_IGN);     // Ctrl-C is the bench's to answer
    confine(threads);
    roof::Workers workers(threads);
    const roof::Peak peak = roof::peak_of(dtype == "bf16" ? POLYHEAD_BF16 : POLYHEAD_F32);
    std::cout << Json{{"fma", roof::peak_name(peak)}} << '\n' << std::flush;
    for (std::string line; std::getline(std::cin, line);)
        std::cout << answer(workers, peak, Json::parse(line, nullptr, false)) << '\n' << std::flush;
    return 0;
}
