// The compiler's process: serves one job.
#include "serve_job.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <Halide.h>

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "../contract/problem_fields.h"
#include "../generators/expressions/source.h"
#include "../tools/compile_job.h"
#include "../tools/job_json.h"
#include "compile.h"
#include "halide_target.h"

namespace polyhead::tools {
namespace {

namespace fs = std::filesystem;

int answers = -1; // where the answer goes, in the process that serves a job

bool answer(const Json &what) {
    const std::string text = text_of(what);
    size_t written = 0;
    for (ssize_t some = 0; written < text.size() && (some = ::write(answers, text.data() + written, text.size() - written)) > 0;) {
        written += size_t(some);
    }
    return written == text.size();
}

// Ends this process with the one that asked for the compilation, which may be killed.
void end_with(int asker) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != asker) {
        std::_Exit(1);
    }
}

std::string standard_input() {
    std::string text;
    char part[4096];
    for (ssize_t some = 0; (some = ::read(STDIN_FILENO, part, sizeof part)) > 0;) {
        text.append(part, size_t(some));
    }
    return text;
}

ExpressionSource read_source(const Json &j) {
    return {j.at("source_file").get<std::string>(), j.at("source_text").get<std::string>(), j.at("source_library").get<std::string>()};
}

std::string load_source(const ExpressionSource &source, gen::LoadedSource *loaded) {
    return gen::load_expression_source(source.file, source.text, source.library, loaded);
}

struct ReadJob {
    CompileJob job;
    std::string expression; // that the problem points to
};

std::string read_job(const Json &j, ReadJob *read) {
    CompileJob &job = read->job;
    for (const contract::ProblemField &field : contract::problem_fields) {
        job.problem.*field.value = j.at("problem").at(field.name).get<int32_t>();
    }
    const auto frame = j.at("frame").get<std::string>();
    job.plan.frame = gen::frame_named(frame);
    if (!job.plan.frame) {
        return "frame: found '" + frame + "', expected one of " + gen::frame_names();
    }
    job.plan.target = j.at("target").get<std::string>();
    job.plan.min_seq_len_q = j.at("min_seq_len_q").get<int32_t>();
    job.plan.max_seq_len_q = j.at("max_seq_len_q").get<int32_t>();
    job.plan.few_blocks_of = j.at("few_blocks_of").get<int32_t>();
    job.symbol = j.at("symbol").get<std::string>();
    job.object_path = j.at("object").get<std::string>();
    job.listings = j.at("listings").get<std::vector<std::string>>();
    job.compares = j.at("compares").get<bool>();
    job.plan.autoscheduler = j.at("autoscheduler").get<std::string>();
    job.source = read_source(j);
    read->expression = j.at("expression").get<std::string>();
    std::string refusal = job.plan.tiling.set_all(j.at("tiling").get<std::string>());
    if (refusal.empty() && !job.source.library.empty()) {
        gen::LoadedSource loaded;
        refusal = load_source(job.source, &loaded);
        read->expression = loaded.text;
    }
    job.problem.expression = read->expression.empty() ? nullptr : read->expression.c_str();
    return refusal;
}

// Makes the folder of a path the current one; *name is the path from there.
std::string enter_folder_of(const fs::path &path, std::string *name) {
    *name = path.filename().string();
    const std::string folder = path.parent_path().string();
    return folder.empty() || ::chdir(folder.c_str()) == 0 ? "" : "cannot enter '" + folder + "': " + std::strerror(errno);
}

std::string compile(const Json &j, gen::CompiledVariant *compiled) {
    ReadJob read;
    const CompileJob &job = read.job;
    std::string name, error = read_job(j, &read);
    error = error.empty() ? enter_folder_of(job.object_path, &name) : error;
    if (error.empty()) {
        *compiled = gen::compile_variant(job.problem, job.plan, job.symbol, name, job.listings, job.compares, &error);
    }
    return error;
}

std::string make_file(const FileJob &job) {
    std::string name, error = enter_folder_of(job.path, &name);
    if (!error.empty()) {
        return error;
    }
    if (job.objects.empty()) {
        error = gen::compile_runtime(name, job.target);
    } else { // LLVM makes names absolute, and puts digits in the place of each '%'
        const std::string here = "/proc/self/cwd/";
        std::vector<std::string> objects;
        for (const std::string &object : job.objects) {
            objects.push_back(here + object);
        }
        Halide::create_static_library(objects, gen::halide_target(gen::parsed_target(job.target)), here + name);
    }
    return error.empty() && !fs::exists(name) ? "cannot write '" + job.path + "'" : error;
}

std::string describe_source(const ExpressionSource &source, Json *made) {
    gen::LoadedSource loaded;
    const std::string error = load_source(source, &loaded);
    (*made)["name"] = loaded.name;
    (*made)["text"] = loaded.text;
    for (const auto &[name, facts] : {std::pair("score_facts", loaded.score_facts), std::pair("mask_facts", loaded.mask_facts)}) {
        if (facts) {
            (*made)[name] = *facts;
        }
    }
    return error;
}

} // namespace

int serve_compile_job() {
    std::signal(SIGXFSZ, SIG_IGN); // a file that may not grow is an error like a full disk
    std::signal(SIGPIPE, SIG_IGN);
    answers = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    ::dup2(STDERR_FILENO, STDOUT_FILENO); // what a library prints is no answer
    std::string error;
    Json made = Json::object();
    try {
        const Json j = json_of(standard_input());
        end_with(j.is_object() ? j.value("asker", 0) : 0);
        if (!j.is_object() || j.value("build", "") != build_of_jobs()) {
            error = "the compiler's process is from another build of polyhead, expected " + build_of_jobs();
        } else if (j.contains("objects")) {
            error = make_file({j.at("path"), j.at("target"), j.at("objects")});
        } else if (!j.contains("problem")) {
            error = describe_source(read_source(j), &made);
        } else {
            gen::CompiledVariant compiled;
            error = compile(j, &compiled);
            made["facts"] = facts_json(compiled);
        }
    } catch (...) {
        error = gen::thrown_sentence();
    }
    made["error"] = error;
    return answer(made) ? 0 : 1;
}

void answer_failure(const std::string &sentence) noexcept {
    if (answers >= 0) {
        answer({{"error", sentence}});
    }
}

} // namespace polyhead::tools
