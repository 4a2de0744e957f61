#include "table.h"

#include <fstream>
#include <map>
#include <memory>
#include <regex>

#include "../instruments/calls/compiled_kernel.h"
#include "../instruments/calls/problems.h"
#include "../tools/request.h"

namespace bench {
namespace {

using polyhead::test::CompiledKernel;

struct Line {
    polyhead::tools::Request request;
    std::string error;
};
struct Table {
    std::vector<std::string> names;
    std::map<std::string, Line> lines;
};

// Words of a line as a shell has them: blanks between them, quotes around some.
std::vector<std::string> words_of(const std::string &text) {
    std::vector<std::string> words;
    char quote = 0;
    bool inside = false;
    for (const char c : text) {
        if (quote == 0 && (c == ' ' || c == '\t')) {
            inside = false;
            continue;
        }
        if (!inside)
            words.emplace_back();
        inside = true;
        if (quote == 0 && (c == '\'' || c == '"'))
            quote = c;
        else if (c == quote)
            quote = 0;
        else
            words.back() += c;
    }
    return words;
}

Line read_line(const std::string &name, const std::string &flags) {
    std::vector<std::string> words = {"polyhead generate", name};
    for (const std::string &word : words_of(flags))
        words.push_back(word);
    std::vector<const char *> arguments;
    for (const std::string &word : words)
        arguments.push_back(word.c_str());
    Line line;
    std::string help;
    line.error = polyhead::tools::parse_request(static_cast<int>(arguments.size()), arguments.data(), &line.request, &help);
    return line;
}

const Table &table() {
    static const Table read = [] {
        Table made;
        const std::regex form("^([A-Za-z0-9_]+) *\\(([a-z_ ]*)\\) *: *(.*)$");
        std::ifstream file(BENCH_KERNEL_TABLE);
        std::smatch parts;
        for (std::string text; std::getline(file, text);)
            if (std::regex_match(text, parts, form) && parts[2].str().find("gpu_only") == std::string::npos) {
                made.names.push_back(parts[1]);
                made.lines.emplace(parts[1], read_line(parts[1], parts[3]));
            }
        return made;
    }();
    return read;
}

// The kernel for the first target that this machine runs.
const polyhead::Kernel *compiled(const std::string &name, const polyhead::Problem &problem, const std::vector<std::string> &targets,
                                 const std::string &tiling, std::string *error) {
    static std::map<std::string, std::unique_ptr<CompiledKernel>> kept;
    const auto found = kept.find(name);
    if (found != kept.end())
        return &found->second->kernel();
    *error = "no variant for this machine";
    for (const std::string &target : targets) {
        auto kernel = std::make_unique<CompiledKernel>(problem, polyhead::load::CompiledKernelOptions{target, tiling, name});
        if (!kernel->error().empty())
            *error = kernel->error();
        else if (kernel->kernel().supported()) {
            error->clear();
            return &(kept[name] = std::move(kernel))->kernel();
        }
    }
    return nullptr;
}

} // namespace

const std::vector<std::string> &table_names() {
    return table().names;
}

const polyhead::Problem &table_problem(const std::string &name) {
    return table().lines.at(name).request.problem;
}

const polyhead::Kernel *kernel_named(const std::string &name, std::string *error) {
    const auto found = table().lines.find(name);
    if (found == table().lines.end()) {
        *error = "the table has no kernel " + name;
        return nullptr;
    }
    const Line &line = found->second;
    *error = line.error;
    return line.error.empty() ? compiled(name, line.request.problem, line.request.targets, line.request.tiling, error) : nullptr;
}

const polyhead::Kernel *kernel_of(const polyhead::Problem &problem, std::string *error) {
    return compiled(polyhead::test::generate_line(problem), problem, {"host"}, "", error);
}

} // namespace bench
