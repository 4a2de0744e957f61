// polyhead-generate: writes one kernel library, or the Halide runtime; one sentence on stderr and exit status 1 when it cannot.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "../compile/compile.h"
#include "../compile/serve_job.h"
#include "../plan/text.h"
#include "final_message.h"
#include "library.h"
#include "space.h"

namespace {

using polyhead::tools::Request;

std::string list_tilings(const Request &request) {
    std::string error;
    for (const polyhead::gen::VariantPlan &plan : plan_request(request, &error)) {
        const std::string few =
            plan.few_blocks_of > 0 ? ", for few blocks of " + std::to_string(plan.few_blocks_of) + " queries" : std::string();
        std::printf("%s %s %d:%d %s%s%s%s\n", plan.frame->name(), plan.target.c_str(), plan.min_seq_len_q, plan.max_seq_len_q,
                    plan.tiling.to_string().c_str(), few.c_str(), plan.record.empty() ? "" : ", from ", plan.record.c_str());
    }
    return error;
}

std::string list_lowered(const Request &request) {
    std::string error;
    for (const polyhead::gen::VariantPlan &plan : plan_request(request, &error)) {
        const std::string text = polyhead::gen::lower_variant(request.problem, plan, &error);
        if (!error.empty()) {
            return error;
        }
        std::printf("variant %s %s\n%s", plan.target.c_str(), plan.text().c_str(), text.c_str());
    }
    return error;
}

// What is printed instead of a library.
std::string list(const Request &request) {
    if (!request.list_space) {
        return request.list_lowered ? list_lowered(request) : list_tilings(request);
    }
    std::string error;
    const std::string space = polyhead::tools::space_text(request, &error);
    std::fputs(space.c_str(), stdout);
    return error;
}

std::string serve(int argc, const char *const *argv) {
    Request request;
    std::string help;
    std::string error = parse_request(argc, argv, &request, &help);
    if (!error.empty() || !help.empty()) {
        std::fputs(help.c_str(), stdout);
        return error;
    }
    if (!request.runtime_path.empty()) {
        return polyhead::tools::write_runtime(request.runtime_path, request.targets[0], request.limits);
    }
    std::vector<Request> kernels;
    error = complete_requests(request, &kernels);
    if (!error.empty()) {
        return error;
    }
    if (!request.list_space && !request.list_lowered && !request.list_tilings) {
        return polyhead::tools::write_library(kernels);
    }
    for (const Request &kernel : kernels) {
        error = error.empty() ? list(kernel) : error;
    }
    return error;
}

// Halide throws from destructors too, which ends in terminate: the same sentence and the same clean folder then.
[[noreturn]] void end_by_terminate() {
    std::string what = "the compiler failed";
    try {
        if (const std::exception_ptr exception = std::current_exception()) {
            std::rethrow_exception(exception);
        }
    } catch (...) {
        what = polyhead::gen::thrown_sentence();
    }
    polyhead::tools::answer_failure(what);
    polyhead::tools::give_up(what.c_str());
}

std::string serve_safely(int argc, const char *const *argv) {
    const polyhead::tools::FinalMessage words;
    try {
        return serve(argc, argv);
    } catch (...) { // Halide and CLI11 report by throwing
        return polyhead::gen::thrown_sentence();
    }
}

// It may repeat the path of a folder, which may hold any bytes.
void say(const std::string &error) {
    std::fprintf(stderr, "polyhead generate: %s\n", polyhead::gen::on_one_line(error).c_str());
}

// This program, for the processes that it compiles in.
std::string own_path(const char *called) {
    std::error_code error;
    const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
    return error ? called : path.string();
}

} // namespace

int main(int argc, char **argv) {
    std::set_terminate(end_by_terminate);
    if (argc == 2 && std::strcmp(argv[1], "--compile-job") == 0) {
        return polyhead::tools::serve_compile_job();
    }
    polyhead::tools::set_compiler_program(own_path(argv[0]));
    std::string error = serve_safely(argc, argv);
    if (error.empty() && std::fflush(stdout) != 0) {
        error = std::string("standard output: ") + std::strerror(errno);
    }
    if (!error.empty()) {
        say(error);
        return 1;
    }
    return 0;
}
