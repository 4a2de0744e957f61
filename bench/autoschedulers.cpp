// One case under one of Halide's autoschedulers, in turns with our schedule. Prints one JSON object.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "../instruments/calls/compiled_kernel.h"
#include "../instruments/calls/problems.h"
#include "../instruments/roof/roof.h"
#include "commands.h"
#include "workload.h"

namespace {

using Json = nlohmann::ordered_json;
using polyhead::test::linear_problem;
using polyhead::test::mha_problem;
using polyhead::test::sdpa_problem;

struct Case {
    const char *name;
    polyhead::Problem problem;
    std::vector<std::string> frames; // ours first; an autoscheduler is given each
};

// Lengths are fixed: an autoscheduler works from estimates, and here they are the truth.
std::vector<Case> make_cases() {
    auto fixed = [](polyhead::Problem problem, int seq_len, bool causal = false) {
        problem.seq_len_q = seq_len;
        problem.seq_len_kv = problem.op == POLYHEAD_LINEAR ? 0 : seq_len;
        problem.causal = causal ? POLYHEAD_BOTTOM_RIGHT : POLYHEAD_NOT_CAUSAL;
        problem.bias = problem.op != POLYHEAD_SDPA;
        return problem;
    };
    const std::vector<std::string> attention = {"query_lanes", "plain"};
    return {{"SDPA B1 H12 T512 d64", fixed(sdpa_problem(12, 64), 512), attention},
            {"SDPA causal B1 H12 T512 d64", fixed(sdpa_problem(12, 64), 512, true), attention},
            {"SDPA B1 H16 T1024 d128", fixed(sdpa_problem(16, 128), 1024), attention},
            {"linear 512x768->2304", fixed(linear_problem(768, 2304), 512), {"linear"}},
            {"layer B1 T128 D384 H12", fixed(mha_problem(384, 12), 128), attention}};
}

bench::Lengths shape_of(const polyhead::Problem &problem) {
    return {1, problem.seq_len_q, problem.seq_len_kv};
}

// A kernel and its tensors; `error` says why it cannot be timed.
struct Candidate {
    double compile_seconds = 0;
    std::string error;
    std::unique_ptr<polyhead::test::CompiledKernel> kernel;
    std::unique_ptr<bench::Workload> workload;

    Candidate(const polyhead::Problem &problem, const std::string &tiling) {
        const auto start = std::chrono::steady_clock::now();
        kernel = std::make_unique<polyhead::test::CompiledKernel>(problem, polyhead::load::CompiledKernelOptions{"host", tiling});
        compile_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        error = kernel->error();
        if (error.empty()) {
            workload = std::make_unique<bench::Workload>(kernel->kernel(), shape_of(problem));
            error = workload->check();
        }
    }
    void run() const { (void)workload->run(); } // checked; the same call cannot be refused later
};

Json json_of(const roof::Spread &s) {
    return {{"median", s.median}, {"q1", s.q1}, {"q3", s.q3}};
}

// Rounds of both and of the peak in turns; a round in which other programs were busy is made once more.
Json measure(const Candidate &ours, const Candidate &theirs, const bench::Options &options) {
    roof::Workers workers(options.threads);
    std::vector<double> ours_percent, theirs_percent, ratio, peak, others, ours_ms, theirs_ms;
    const double gflop = ours.workload->flops() / 1e9;
    for (int i = 0; i < options.rounds; i++) {
        auto round_of_all = [&] { return roof::measure_round(workers, {[&] { ours.run(); }, [&] { theirs.run(); }}, 0.05, 3); };
        roof::Round round = round_of_all();
        if (round.others_busy > 0.1) {
            const roof::Round again = round_of_all();
            round = again.others_busy < round.others_busy ? again : round;
        }
        ours_percent.push_back(100 * gflop / round.seconds[0] / round.peak_gflops);
        theirs_percent.push_back(100 * gflop / round.seconds[1] / round.peak_gflops);
        ratio.push_back(round.seconds[1] / round.seconds[0]);
        ours_ms.push_back(1e3 * round.seconds[0]);
        theirs_ms.push_back(1e3 * round.seconds[1]);
        peak.push_back(round.peak_gflops);
        others.push_back(round.others_busy);
    }
    return {{"ours_percent", json_of(roof::spread(ours_percent))}, {"theirs_percent", json_of(roof::spread(theirs_percent))},
            {"theirs_over_ours", json_of(roof::spread(ratio))},    {"ours_ms", json_of(roof::spread(ours_ms))},
            {"theirs_ms", json_of(roof::spread(theirs_ms))},       {"peak_gflops", json_of(roof::spread(peak))},
            {"others_busy", json_of(roof::spread(others))}};
}

int fail(const std::string &sentence) {
    std::fprintf(stderr, "%s\n", sentence.c_str());
    return 1;
}

} // namespace

int bench::run_autoschedulers(const Options &options) {
    ::setenv("POLYHEAD_CACHE", "off", 1); // compilations are timed
    const std::vector<Case> cases = make_cases();
    if (options.list) {
        Json list = Json::array();
        for (const Case &one : cases)
            list.push_back({{"name", one.name}, {"frames", one.frames}});
        std::printf("%s\n", list.dump().c_str());
        return 0;
    }
    for (const Case &one : cases) {
        if (options.case_name != one.name)
            continue;
        polyhead::set_num_threads(options.threads);
        std::string words = "frame=" + options.frame + " autoscheduler=" + options.autoscheduler +
                            " autoscheduler.parallelism=" + std::to_string(options.threads);
        for (const std::string &parameter : options.parameters)
            words += " autoscheduler." + parameter;
        const Candidate theirs(one.problem, words);
        if (!theirs.error.empty())
            return fail(theirs.error);
        const Candidate ours(one.problem, "frame=" + one.frames.front());
        if (!ours.error.empty())
            return fail("our schedule: " + ours.error);
        Json result = measure(ours, theirs, options);
        result["compile_seconds"] = theirs.compile_seconds;
        result["ours_compile_seconds"] = ours.compile_seconds;
        result["fma"] = roof::peak_name();
        std::printf("%s\n", result.dump().c_str());
        return 0;
    }
    return fail("case '" + options.case_name + "' is not known: expected one of --list");
}
