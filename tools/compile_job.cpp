// Compile jobs as JSON, and the process that serves one.
#include "compile_job.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>

#include <Halide.h>
#include <nlohmann/json.hpp>

#include "../contract/problem_fields.h"
#include "../generators/expressions/source.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace polyhead::tools {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// Every field is named below; a new one changes the size.
static_assert(sizeof(gen::VariantFacts) == sizeof(polyhead_scratch) + sizeof(uint64_t) + 4 * sizeof(int32_t));
static_assert(sizeof(polyhead_scratch_term) == sizeof(int64_t) + 4 * sizeof(int32_t));

Json term_json(const polyhead_scratch_term &term) {
    return {term.bytes, term.row_block, term.key_block, term.in_window};
}

polyhead_scratch_term read_term(const Json &term) {
    return {term.at(0).get<int64_t>(), term.at(1).get<int32_t>(), term.at(2).get<int32_t>(), term.at(3).get<int32_t>()};
}

Json facts_json(const gen::VariantFacts &facts) {
    Json terms = Json::array();
    for (const polyhead_scratch_term &term : facts.scratch.terms) {
        terms.push_back(term_json(term));
    }
    Json j = {{"per_thread", facts.scratch.per_thread}, {"thread_keys", term_json(facts.scratch.thread_keys)}, {"terms", terms}};
    contract::for_each_requirement(facts, [&](const char *name, auto value) { j[name] = value; });
    return j;
}

void read_facts(const Json &j, gen::VariantFacts *facts) {
    facts->scratch.per_thread = j.at("per_thread").get<int64_t>();
    facts->scratch.thread_keys = read_term(j.at("thread_keys"));
    for (size_t i = 0; i < std::size(facts->scratch.terms); i++) {
        facts->scratch.terms[i] = read_term(j.at("terms").at(i));
    }
    contract::for_each_requirement(*facts, [&](const char *name, auto &value) { j.at(name).get_to(value); });
}

// As CBOR, whose strings may hold the bytes of any path.
std::string text_of(const Json &j) {
    std::string text;
    Json::to_cbor(j, nlohmann::detail::output_adapter<char>(text));
    return text;
}

// Neither an object nor an answer where the text is something else.
Json json_of(const std::string &text) {
    return Json::from_cbor(text, true, false);
}

int answers = -1; // where the answer goes, in the process that serves a job

bool answer(const Json &what) {
    const std::string text = text_of(what);
    size_t written = 0;
    for (ssize_t some = 0; written < text.size() && (some = ::write(answers, text.data() + written, text.size() - written)) > 0;) {
        written += size_t(some);
    }
    return written == text.size();
}

std::string build() {
    return std::string(POLYHEAD_VERSION) + " " + std::to_string(POLYHEAD_ABI_VERSION);
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
    job.symbol = j.at("symbol").get<std::string>();
    job.object_path = j.at("object").get<std::string>();
    job.listings = j.at("listings").get<std::vector<std::string>>();
    job.source = {j.at("source_file").get<std::string>(), j.at("source_text").get<std::string>(),
                  j.at("source_library").get<std::string>()};
    read->expression = j.at("expression").get<std::string>();
    std::string refusal = job.plan.tiling.set_all(j.at("tiling").get<std::string>());
    if (refusal.empty() && !job.source.library.empty()) {
        refusal = gen::load_expression_source(job.source.file, job.source.text, job.source.library, &read->expression);
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
        *compiled = gen::compile_variant(job.problem, job.plan, job.symbol, name, job.listings, &error);
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
        Halide::create_static_library(objects, Halide::Target(job.target), here + name);
    }
    return error.empty() && !fs::exists(name) ? "cannot write '" + job.path + "'" : error;
}

} // namespace

std::string job_text(const CompileJob &job) {
    Json problem;
    for (const contract::ProblemField &field : contract::problem_fields) {
        problem[field.name] = job.problem.*field.value;
    }
    return text_of({{"build", build()},
                    {"asker", getpid()},
                    {"problem", problem},
                    {"expression", job.problem.expression ? job.problem.expression : ""},
                    {"frame", job.plan.frame->name()},
                    {"target", job.plan.target},
                    {"tiling", job.plan.tiling.to_string()},
                    {"min_seq_len_q", job.plan.min_seq_len_q},
                    {"max_seq_len_q", job.plan.max_seq_len_q},
                    {"symbol", job.symbol},
                    {"object", job.object_path},
                    {"listings", job.listings},
                    {"source_file", job.source.file},
                    {"source_text", job.source.text},
                    {"source_library", job.source.library}});
}

std::string job_text(const FileJob &job) {
    return text_of({{"build", build()}, {"asker", getpid()}, {"path", job.path}, {"target", job.target}, {"objects", job.objects}});
}

std::string read_answer(const std::string &answer) {
    const Json j = json_of(answer);
    return j.is_object() && j.contains("error") ? j["error"].get<std::string>() : "the compiler ended without an answer";
}

gen::CompiledVariant read_answer(const CompileJob &job, const std::string &answer, std::string *error) {
    gen::CompiledVariant compiled;
    const Json j = json_of(answer);
    try {
        *error = j.at("error").get<std::string>();
        read_facts(j.at("facts"), &compiled);
    } catch (const Json::exception &) {
        *error = "the compiler ended without an answer";
    }
    compiled.symbol = job.symbol;
    compiled.object_path = job.object_path;
    return compiled;
}

int serve_compile_job() {
    std::signal(SIGXFSZ, SIG_IGN); // a file that may not grow is an error like a full disk
    std::signal(SIGPIPE, SIG_IGN);
    answers = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    ::dup2(STDERR_FILENO, STDOUT_FILENO); // what a library prints is no answer
    std::string error;
    gen::CompiledVariant compiled;
    try {
        const Json j = json_of(standard_input());
        end_with(j.is_object() ? j.value("asker", 0) : 0);
        if (!j.is_object() || j.value("build", "") != build()) {
            error = "the compiler's process is from another build of polyhead, expected " + build();
        } else if (j.contains("objects")) {
            error = make_file({j.at("path"), j.at("target"), j.at("objects")});
        } else {
            error = compile(j, &compiled);
        }
    } catch (...) {
        error = gen::thrown_sentence();
    }
    return answer({{"facts", facts_json(compiled)}, {"error", error}}) ? 0 : 1;
}

void answer_failure(const std::string &sentence) noexcept {
    if (answers >= 0) {
        answer({{"facts", facts_json({})}, {"error", sentence}});
    }
}

} // namespace polyhead::tools
