// Jobs for the compiler and its answers as JSON.
#include "compile_job.h"

#include <iterator>

#include <unistd.h>

#include "../contract/problem_fields.h"
#include "../plan/language/sources.h"
#include "job_json.h"

namespace polyhead::tools {
namespace {

// Every field is named below; a new one changes the size.
static_assert(sizeof(gen::VariantFacts) == sizeof(polyhead_scratch) + sizeof(uint64_t) + 6 * sizeof(int32_t));
static_assert(sizeof(polyhead_scratch_term) == sizeof(int64_t) + 4 * sizeof(int32_t));

Json term_json(const polyhead_scratch_term &term) {
    return {term.bytes, term.row_block, term.key_block, term.in_window, term.query_bytes};
}

polyhead_scratch_term read_term(const Json &term) {
    return {term.at(0).get<int64_t>(), term.at(1).get<int32_t>(), term.at(2).get<int32_t>(), term.at(3).get<int32_t>(),
            term.at(4).get<int32_t>()};
}

} // namespace

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

std::string text_of(const Json &j) {
    std::string text;
    Json::to_cbor(j, nlohmann::detail::output_adapter<char>(text));
    return text;
}

Json json_of(const std::string &text) {
    return Json::from_cbor(text, true, false);
}

std::string build_of_jobs() {
    return std::string(POLYHEAD_VERSION) + " " + std::to_string(POLYHEAD_ABI_VERSION);
}

namespace {

// What decides the object.
Json content_of(const CompileJob &job) {
    Json problem;
    for (const contract::ProblemField &field : contract::problem_fields) {
        problem[field.name] = job.problem.*field.value;
    }
    return {{"build", build_of_jobs()},
            {"problem", problem},
            {"expression", job.problem.expression ? job.problem.expression : ""},
            {"frame", job.plan.frame->name()},
            {"target", job.plan.target},
            {"tiling", job.plan.tiling.to_string()},
            {"min_seq_len_q", job.plan.min_seq_len_q},
            {"max_seq_len_q", job.plan.max_seq_len_q},
            {"few_blocks_of", job.plan.few_blocks_of},
            {"symbol", job.symbol},
            {"source_file", job.source.file},
            {"source_text", job.source.text},
            {"autoscheduler", job.plan.autoscheduler},
            {"compares", job.compares}};
}

} // namespace

std::string job_text(const CompileJob &job) {
    Json j = content_of(job);
    j["asker"] = getpid();
    j["object"] = job.object_path;
    j["listings"] = job.listings;
    j["source_library"] = job.source.library;
    return text_of(j);
}

std::string job_key(const CompileJob &job) {
    return text_of(content_of(job));
}

std::string job_text(const FileJob &job) {
    return text_of({{"build", build_of_jobs()}, {"asker", getpid()}, {"path", job.path}, {"target", job.target}, {"objects", job.objects}});
}

std::string job_text(const ExpressionSource &source) {
    return text_of({{"build", build_of_jobs()},
                    {"asker", getpid()},
                    {"source_file", source.file},
                    {"source_text", source.text},
                    {"source_library", source.library}});
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
        if (error->empty()) {
            read_facts(j.at("facts"), &compiled);
        }
    } catch (const Json::exception &) {
        *error = "the compiler ended without an answer";
    }
    compiled.symbol = job.symbol;
    compiled.object_path = job.object_path;
    return compiled;
}

std::string read_source_answer(const std::string &answer, std::string *text) {
    const Json j = json_of(answer);
    try {
        if (const std::string error = j.at("error").get<std::string>(); !error.empty()) {
            return error;
        }
        const auto function = [&](const char *facts) {
            return j.contains(facts) ? std::make_shared<gen::language::SourceFunction>(j.at(facts).get<uint32_t>()) : nullptr;
        };
        gen::know_source(j.at("name").get<std::string>(), {function("score_facts"), function("mask_facts")});
        *text = j.at("text").get<std::string>();
    } catch (const Json::exception &) {
        return "the compiler ended without an answer";
    }
    return "";
}

} // namespace polyhead::tools
