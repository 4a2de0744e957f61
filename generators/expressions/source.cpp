// User expressions written in C++: opened, tried once, and called where a text names them.
#define POLYHEAD_EXPRESSION_SOURCE_READER
#include "source.h"

#include <cinttypes>
#include <cstdio>
#include <map>
#include <mutex>
#include <stdexcept>

#include <dlfcn.h>

#include <polyhead/c_problem.h>
#include <polyhead/expression_source.h>

#include "../text.h"

namespace polyhead::gen {

using Halide::Expr;

namespace {

// Threads compile kernels while others open sources.
class LoadedSources {
public:
    static LoadedSources &of() {
        static LoadedSources *const all = new LoadedSources; // never destroyed: threads may compile while the program ends
        return *all;
    }
    void add(const std::string &name, const ExpressionSource &source) {
        const std::lock_guard<std::mutex> lock(mutex_);
        sources_[name] = source;
    }
    bool find(const std::string &name, ExpressionSource *source) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto found = sources_.find(name);
        if (found == sources_.end()) {
            return false;
        }
        *source = found->second;
        return true;
    }

private:
    std::mutex mutex_;
    std::map<std::string, ExpressionSource> sources_;
};

// The scope of a kernel as a source sees it: tensors by name. A source is tried when it is loaded, so nothing here goes wrong later.
Scope scope_for_source(const ExpressionScope &s, const std::vector<ExpressionTensor> &tensors) {
    Scope scope{s.score, s.b, s.h, s.q, s.kv, s.position, s.seq_len_q, s.seq_len_kv, s.kv_length, nullptr, s.exp, s.tanh};
    scope.element = [element = s.element, tensors](const std::string &name, const std::vector<Expr> &index) {
        for (size_t i = 0; i < tensors.size(); i++) {
            if (tensors[i].name != name) {
                continue;
            }
            if (index.size() != static_cast<size_t>(tensors[i].rank)) {
                throw std::invalid_argument("'" + name + "': found " + std::to_string(index.size()) + " indices, expected " +
                                            std::to_string(tensors[i].rank));
            }
            for (const Expr &one : index) {
                if (!one.defined() || one.type() != Halide::Int(32)) {
                    throw std::invalid_argument("'" + name + "': found an index that is not int32");
                }
            }
            return element(i, index);
        }
        throw std::invalid_argument("unknown tensor '" + name + "'; declarations() does not declare it");
    };
    return scope;
}

std::string type_of(const Expr &expr) {
    if (!expr.defined()) {
        return "no Expr";
    }
    TextWriter text;
    text << expr.type();
    return expr.type() == Halide::Bool() ? "bool" : text.str();
}

// Calls both functions once with variables. Returns a sentence when they give what no kernel can use.
std::string try_out(const ExpressionSource &source, const std::vector<ExpressionTensor> &tensors) {
    const Scope scope = scope_for_source(language::scope_of_variables(tensors), tensors);
    try { // Halide's errors about an Expr
        const Expr score = source.score ? source.score(scope) : Expr(0.0f);
        const Expr mask = source.mask ? source.mask(scope) : Expr(Halide::cast<bool>(true));
        if (!score.defined() || score.type() != Halide::Float(32)) {
            return "score() gives " + type_of(score) + ", expected float32";
        }
        if (!mask.defined() || mask.type() != Halide::Bool()) {
            return "mask() gives " + type_of(mask) + ", expected bool";
        }
    } catch (const std::exception &exception) {
        const std::string what = exception.what();
        return what.substr(0, what.find('\n'));
    }
    return "";
}

// "soft_threshold_1a2b3c4d": the file's name and its content.
std::string name_of(const std::string &file, const std::string &content) {
    std::string name = file.substr(file.find_last_of('/') + 1);
    name = name.substr(0, std::min<size_t>(name.find('.'), 24));
    for (char &c : name) {
        c = is_letter(c) || is_digit(c) ? c : '_';
    }
    uint32_t hash = 2166136261u; // FNV-1a
    for (const char c : content) {
        hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
    }
    char digits[16];
    std::snprintf(digits, sizeof digits, "_%08" PRIx32, hash);
    return "s_" + name + digits;
}

} // namespace

std::string load_expression_source(const std::string &file, const std::string &content, const std::string &library, std::string *text) {
    void *object = dlopen((library.find('/') == std::string::npos ? "./" + library : library).c_str(), RTLD_NOW | RTLD_LOCAL);
    void *entry = object ? dlsym(object, "polyhead_expression_source") : nullptr;
    if (!entry) {
        return "expression-library: cannot load '" + library + "': " + dlerror();
    }
    ExpressionSource source{};
    reinterpret_cast<void (*)(ExpressionSource *)>(entry)(&source);
    if (source.version != POLYHEAD_EXPRESSION_SOURCE_VERSION) {
        return "expression-library: '" + library + "' was compiled for another Halide or polyhead";
    }
    if (!source.score && !source.mask) {
        return file + ": defines neither score() nor mask()";
    }
    const std::string name = name_of(file, content);
    const std::string declarations = source.declarations ? source.declarations() : "";
    LoadedSources::of().add(name, source);
    *text = declarations + "\nsource " + name;
    Expression expression;
    const std::string refusal = Expression::parse(*text, file + ", declarations()", &expression);
    if (!refusal.empty()) {
        return refusal;
    }
    const std::string trial = try_out(source, expression.tensors());
    return trial.empty() ? "" : file + ": " + trial;
}

namespace language {

bool add_source(const std::string &name, Program *program) {
    ExpressionSource source{};
    if (!LoadedSources::of().find(name, &source)) {
        return false;
    }
    const auto node = [program](Type type, Expr (*function)(const Scope &)) {
        auto made = std::make_shared<Node>(Node{Op::source, type, {}});
        made->source = [function, tensors = program->tensors](const ExpressionScope &scope) {
            return function(scope_for_source(scope, tensors));
        };
        return made;
    };
    if (source.score) {
        program->score = node(Type::real, source.score);
    }
    if (source.mask) {
        program->mask = node(Type::boolean, source.mask);
    }
    return true;
}

} // namespace language
} // namespace polyhead::gen
