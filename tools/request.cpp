// Command line of polyhead-generate: CLI11 options into a Request, with refusals in one sentence.
#include "request.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>

#include <CLI/CLI.hpp>

#include "../contract/problem_fields.h"
#include "../plan/knob_rules.h"
#include "../plan/language/expression.h"
#include "../plan/plan.h"
#include "../plan/text.h"
#include "../plan/tuning/tuned_records.h"
#include "compile_process.h"
#include "reserved_names.h"

namespace polyhead::tools {
namespace {

using contract::FieldKind;
using contract::ProblemField;

// Option values as text, before they are checked.
struct OptionTexts {
    std::string targets, range, emit, expression, expression_file, expression_source, expression_library, limit_seconds, limit_megabytes;
    bool no_bias = false, no_records = false, list_knobs = false, version = false, untested = false;
};

// The flag of one field of the problem.
void declare_field(CLI::App &app, const ProblemField &field, polyhead_problem *problem) {
    const std::string flag = contract::flag_of(field.name);
    if (field.kind == FieldKind::yes_no) {
        app.add_flag(flag, problem->*field.value, field.help);
    } else if (field.kind == FieldKind::choice) {
        std::string words;
        for (int i = field.always_written ? 0 : 1; i < field.num_choices(); i++) {
            words += (words.empty() ? "" : " | ") + std::string(field.choices[i].word);
        }
        const std::string help = words + ": " + field.help;
        CLI::Option *option = app.add_option(flag, help);
        option->expected(field.value == &polyhead_problem::causal ? 0 : 1, 1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    } else {
        app.add_option(flag, problem->*field.value, field.help);
    }
}

// A flag without a value reads as "true".
std::string refuse_value(const std::string &value) {
    return value == "true" ? "" : "found value '" + value + "', expected a flag without value";
}

void declare(CLI::App &app, Request *request, OptionTexts *words) {
    app.add_option("NAME", request->name, "C identifier of the kernel; also the name of its files");
    for (const ProblemField &field : contract::problem_fields) {
        declare_field(app, field, &request->problem);
    }
    app.add_flag("--no-bias", words->no_bias, "without biases (the default)");
    app.add_option("--expression", words->expression, "user expression: \"score = ...; mask = ...\", see docs/guides/expressions.md");
    app.add_option("--expression-file", words->expression_file, "the same from a file");
    app.add_option("--expression-source", words->expression_source, "the same as C++ of Halide Exprs, with --expression-library");
    app.add_option("--expression-library", words->expression_library, "shared object that was compiled from --expression-source");
    app.add_option("--target", words->targets,
                   "comma-separated, best first: host (default), portable, x86-64-v4 ... x86-64-v2, x86-64, or Halide targets");
    app.add_flag("--untested-target", words->untested, "also targets whose code was never run: other processors, SVE, 32 bits");
    app.add_option("--tiling", request->tiling, "\"key=value ...\": overrides of the default tiling");
    app.add_option("--tuned", request->tuned,
                   "file of tuning records that win over the shipped ones (default: $POLYHEAD_TUNED, which may be off)");
    app.add_flag("--no-tuned", words->no_records, "default tilings, whatever tuning records say");
    app.add_option("--seq-len-q-range", words->range, "MIN:MAX query lengths to make variants for (MAX empty: no limit)");
    app.add_option("--limit-seconds", words->limit_seconds,
                   "processor time that the compiler may take for a variant, 0: any (default: $POLYHEAD_LIMIT_SECONDS or 60)");
    app.add_option("--limit-megabytes", words->limit_megabytes,
                   "memory that it may take, 0: any (default: $POLYHEAD_LIMIT_MEGABYTES or 2048)");
    app.add_option("--emit", words->emit, "stmt,assembly: compiler listings beside the library");
    app.add_option("-o,--output-directory", request->directory, "where the files go (default: here)");
    app.add_option("--runtime", request->runtime_path, "write the Halide runtime of --target to this .o or .a, and no kernel");
    app.add_flag("--version", words->version, "print the version");
    app.add_flag(
        "--backward", request->backward,
        "sdpa, mha, linear: the kernel of the gradients, too, NAME_backward, in the same library; sdpa then has --lse, mha --keep-heads");
    app.add_flag("--list-tilings", request->list_tilings, "print the variants that would be made");
    app.add_flag("--list-lowered", request->list_lowered, "print the lowered code of these variants, with its names numbered");
    app.add_flag("--list-knobs", words->list_knobs, "print the knobs of --tiling as a table in Markdown");
    app.add_flag("--list-space", request->list_space, "print as JSON the tilings that a tuner may try");
    for (CLI::Option *option : app.get_options()) {
        if (option->get_items_expected_max() == 0) {
            option->check(refuse_value); // by itself, CLI11 takes a number as the value of a flag, and throws beyond 64 bits
        }
    }
}

std::string read_range(const std::string &text, Request *request) {
    if (text.empty()) {
        return "";
    }
    const std::string refusal = "seq-len-q-range: found '" + text + "', expected MIN:MAX with 0 <= MIN <= MAX, or MIN:";
    const size_t colon = text.find(':');
    if (colon == std::string::npos || colon == 0 || text.find_first_not_of("0123456789:") != std::string::npos || text.size() > 20) {
        return refusal;
    }
    const std::string upper = text.substr(colon + 1);
    const long long low = std::atoll(text.c_str()), high = upper.empty() ? 0 : std::atoll(upper.c_str());
    if (low > INT32_MAX || high > INT32_MAX || (!upper.empty() && high < std::max(low, 1LL))) {
        return refusal;
    }
    request->min_seq_len_q = static_cast<int32_t>(low);
    request->max_seq_len_q = static_cast<int32_t>(high);
    return "";
}

// "f32, f16 and bf16"
std::string listed(const std::vector<std::string> &words) {
    std::string text;
    for (size_t i = 0; i < words.size(); i++) {
        text += (i == 0 ? "" : i + 1 < words.size() ? ", " : " and ") + words[i];
    }
    return text;
}

std::string read_choice(const ProblemField &field, const CLI::Option &option, int32_t *value) {
    std::vector<std::string> given;
    for (const std::string &word : option.results()) {
        given.push_back(word.empty() && field.value == &polyhead_problem::causal ? "bottom_right" : word);
        if (!contract::find_choice(field, given.back(), value)) {
            return "found '" + word + "', expected " + contract::words_of(field);
        }
        if (given.back() != given.front()) {
            return "found " + listed(given) + ", which conflict: expected one of them";
        }
    }
    return "";
}

// A zero written by the user is refused; a zero that he did not write means "the default".
std::string read_field(const ProblemField &field, const CLI::Option &option, polyhead_problem *problem) {
    int32_t &value = problem->*field.value;
    if (field.kind == FieldKind::choice) {
        return read_choice(field, option, &value);
    }
    if (field.kind == FieldKind::yes_no) {
        value = value != 0 ? 1 : 0;
    } else if (option.count() > 0 && value < 1) {
        return "found " + std::to_string(value) + ", expected at least 1" +
               (field.kind == FieldKind::length ? " (leave it out for a free length)" : "");
    }
    return "";
}

std::string read_fields(const CLI::App &app, const OptionTexts &words, polyhead_problem *problem) {
    for (const ProblemField &field : contract::problem_fields) {
        const CLI::Option &option = *app.get_option(contract::flag_of(field.name));
        const std::string refusal = field.value == &polyhead_problem::op && option.count() == 0 ? "found '', expected " + words_of(field)
                                                                                                : read_field(field, option, problem);
        if (!refusal.empty()) {
            return std::string(field.name) + ": " + refusal;
        }
    }
    return problem->bias && words.no_bias ? "bias: found both --bias and --no-bias, expected one of them" : "";
}

// All of a text file; false when it cannot be read as text.
bool read_text(const std::string &path, std::string *text) {
    if (!gen::read_file(path, text) || text->find('\0') != std::string::npos) {
        return false;
    }
    gen::skip_byte_order_mark(text);
    return true;
}

// Complaints about the text name the user's file.
std::string read_expression(const CLI::App &app, const OptionTexts &words, Request *request) {
    const auto given = [&app](const char *flag) { return app.get_option(flag)->count() > 0; };
    const bool from_file = given("--expression-file"), from_source = given("--expression-source");
    if (given("--expression") + from_file + from_source > 1) {
        return "expression: found more than one of --expression, --expression-file and --expression-source, expected one of them";
    }
    if (from_source != given("--expression-library")) {
        return "expression: found --expression-source or --expression-library alone, expected both";
    }
    std::string text = words.expression, refusal;
    if (from_file && !read_text(words.expression_file, &text)) {
        return "expression-file: cannot read '" + words.expression_file + "' as text";
    }
    if (from_source) {
        request->source = {words.expression_source, "", words.expression_library};
        if (!read_text(words.expression_source, &request->source.text)) {
            return "expression-source: cannot read '" + words.expression_source + "' as text";
        }
        refusal = describe_source_apart(request->source, request->limits, &text);
    } else if (from_file || given("--expression")) {
        gen::Expression expression;
        refusal = gen::Expression::parse(text, from_file ? words.expression_file : "expression", &expression);
    } else {
        return "";
    }
    request->expression = std::make_shared<const std::string>(text);
    request->problem.expression = request->expression->c_str();
    return refusal;
}

std::string read_emit(const std::string &text, std::vector<std::string> *emit) {
    for (const std::string &word : gen::split(text, ',')) {
        if (word != "stmt" && word != "assembly") {
            return "emit: found '" + word + "', expected stmt or assembly";
        }
        emit->push_back(word);
    }
    return "";
}

std::string read_limit_words(const OptionTexts &words, Limits *limits) {
    const std::string refusal = read_limits(limits), expected = "', expected a number from 0 (0: no limit)";
    double megabytes = double(limits->megabytes);
    if (refusal.empty() && !words.limit_seconds.empty() && !read_limit(words.limit_seconds, &limits->seconds)) {
        return "limit_seconds: found '" + words.limit_seconds + expected;
    }
    if (refusal.empty() && !words.limit_megabytes.empty() && !read_limit(words.limit_megabytes, &megabytes)) {
        return "limit_megabytes: found '" + words.limit_megabytes + expected;
    }
    limits->megabytes = int64_t(megabytes);
    return refusal;
}

// How many characters must be changed, added or left out to make one word of another.
size_t edits_between(const std::string &a, const std::string &b) {
    std::vector<size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), size_t(0));
    for (size_t i = 0; i < a.size(); i++) {
        size_t before = row[0]++;
        for (size_t k = 0; k < b.size(); k++) {
            const size_t changed = before + (a[i] == b[k] ? 0 : 1);
            before = row[k + 1];
            row[k + 1] = std::min({changed, row[k] + 1, row[k + 1] + 1});
        }
    }
    return row.back();
}

// Of words that are no option, and the nearest one.
std::string refuse_unknown(const CLI::App &app) {
    const std::vector<std::string> words = app.remaining();
    const auto unknown = std::find_if(words.begin(), words.end(), [](const std::string &word) { return word.rfind('-', 0) == 0; });
    if (unknown == words.end()) {
        return "found '" + (words.empty() ? "" : words.front()) + "', expected options behind one NAME";
    }
    const std::string typed = unknown->substr(0, unknown->find('='));
    std::string nearest;
    size_t least = 1 + typed.size() / 3; // more differences are another word
    for (const CLI::Option *option : app.get_options()) {
        for (const std::string &name : option->get_lnames()) {
            if (const size_t edits = edits_between(typed, "--" + name); edits <= least) {
                least = edits;
                nearest = "--" + name;
            }
        }
    }
    return typed + ": unknown option, expected " +
           (nearest.empty() ? "one of those that --help prints" : nearest + ", or another that --help prints");
}

// Of a number that the operation needs and nobody gave.
std::string refuse_missing(const CLI::App &app, polyhead_problem problem) {
    const std::string sentence = gen::complete(&problem);
    for (const ProblemField &field : contract::problem_fields) {
        const std::string flag = contract::flag_of(field.name), begin = std::string(field.name) + " 0 is not allowed: ";
        if (sentence.rfind(begin, 0) == 0 && app.count(flag) == 0) {
            return flag + ": missing, " + sentence.substr(begin.size());
        }
    }
    return "";
}

std::string first_line(const std::string &text) {
    return text.substr(0, text.find('\n'));
}

std::string read_request(int argc, const char *const *argv, Request *request, std::string *help) {
    CLI::App app("Writes NAME.a, NAME.h and NAME.json: an attention kernel compiled for one problem and the given targets.",
                 "polyhead generate");
    OptionTexts words;
    declare(app, request, &words);
    app.footer("All attention of a model: ./polyhead generate --from config.json, python -m polyhead generate --from config.json; with "
               "--help, their "
               "options.\n\n" +
               gen::knobs_help());
    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp &) {
        *help = app.help();
        return "";
    } catch (const CLI::ExtrasError &) {
        return refuse_unknown(app);
    } catch (const CLI::ParseError &error) {
        return first_line(error.what());
    }
    if (words.version) {
        *help = "polyhead " POLYHEAD_VERSION ", Halide " + gen::halide_version() + "\n";
        return "";
    }
    if (words.list_knobs) {
        *help = gen::knobs_markdown();
        return "";
    }
    const std::string targets = words.targets.empty() ? "host" : words.targets;
    if (!request->runtime_path.empty()) {
        return gen::read_targets(targets, words.untested, request->problem, &request->targets);
    }
    request->use_records = !words.no_records;
    if (words.no_records && !request->tuned.empty()) {
        return "tuned: found both --tuned and --no-tuned, expected one of them";
    }
    for (const std::string &step :
         {refuse_name(request->name), read_fields(app, words, &request->problem), read_limit_words(words, &request->limits),
          gen::read_targets(targets, words.untested, request->problem, &request->targets), read_expression(app, words, request),
          read_range(words.range, request), read_emit(words.emit, &request->emit), refuse_missing(app, request->problem)}) {
        if (!step.empty()) {
            return step;
        }
    }
    return "";
}

} // namespace

std::string parse_request(int argc, const char *const *argv, Request *request, std::string *help) {
    return gen::on_one_line(read_request(argc, argv, request, help));
}

} // namespace polyhead::tools
