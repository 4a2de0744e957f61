// User expressions written in C++: opened, tried once, and called where a text names them.
#define POLYHEAD_EXPRESSION_SOURCE_READER
#include "source.h"

#include <stdexcept>

#include <dlfcn.h>

#include <polyhead/c_api.h>
#include <polyhead/expression_source.h>

#include "../../plan/text.h"
#include "../random_words.h"

namespace polyhead::gen {

using Halide::Expr;

namespace {

constexpr char batch_row[] = "b", key_length[] = "seq_len_kv";

bool is_batch_row(const Expr &index) {
    const auto *const variable = index.as<Halide::Internal::Variable>();
    return variable && variable->name == batch_row;
}

void require_int32(const std::string &found, const std::vector<Expr> &exprs) {
    for (const Expr &one : exprs) {
        if (!one.defined() || one.type() != Halide::Int(32)) {
            throw std::invalid_argument(found + " that is not int32");
        }
    }
}

// The scope of a kernel as a source sees it: tensors by name. A source is tried when it is loaded, so nothing here goes wrong later.
Scope scope_for_source(const ExpressionScope &s, const std::vector<ExpressionTensor> &tensors) {
    Scope scope{s.score, s.b, s.h, s.q, s.kv, s.position, s.seq_len_q, s.seq_len_kv, s.kv_length, nullptr, s.exp, s.tanh, nullptr};
    scope.element = [element = s.element, tensors](const std::string &name, const std::vector<Expr> &index) {
        for (size_t i = 0; i < tensors.size(); i++) {
            if (tensors[i].name != name) {
                continue;
            }
            if (index.size() != static_cast<size_t>(tensors[i].rank)) {
                throw std::invalid_argument("'" + name + "': found " + std::to_string(index.size()) + " indices, expected " +
                                            std::to_string(tensors[i].rank));
            }
            require_int32("'" + name + "': found an index", index);
            return element(i, index);
        }
        throw std::invalid_argument("unknown tensor '" + name + "'; declarations() does not declare it");
    };
    scope.uniform = [uniform = s.uniform](const Expr &seed, const Expr &b, const Expr &h, const Expr &q, const Expr &kv) {
        const std::vector<Expr> all = {seed, b, h, q, kv};
        require_int32("uniform: found an argument", all);
        return uniform(all);
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

// What a text with this source calls.
struct Called : language::SourceFunction {
    Called(Expr (*called)(const Scope &), uint32_t facts_read, std::vector<ExpressionTensor> declared)
        : SourceFunction(facts_read), function(called), tensors(std::move(declared)) {}
    Expr (*function)(const Scope &);
    std::vector<ExpressionTensor> tensors;
};

// Variables in place of everything, to find out what a source reads. b as the index of a dimension that is declared as b is none.
ExpressionScope scope_of_variables(const std::vector<ExpressionTensor> &tensors) {
    const auto variable = [](const char *name) { return Expr(Halide::Var(name)); };
    ExpressionScope scope{Halide::cast<float>(variable("score")),
                          variable(batch_row),
                          variable("h"),
                          variable("q"),
                          variable("kv"),
                          variable("p"),
                          variable("seq_len_q"),
                          variable(key_length),
                          variable("kv_length"),
                          nullptr,
                          [](const Expr &x) { return Halide::exp(x); },
                          [](const Expr &x) { return Halide::tanh(x); },
                          [](const std::vector<Expr> &x) { return uniform(product_of_64_bits, x); }};
    scope.element = [tensors](size_t i, std::vector<Expr> index) {
        const ExpressionTensor &tensor = tensors[i];
        for (size_t d = 0; d < index.size(); d++) { // that dimension is divided as the batch is
            index[d] = tensor.extents[d] == POLYHEAD_EXTENT_B && is_batch_row(index[d]) ? Expr(0) : index[d];
        }
        const Halide::Type type = tensor.dtype == POLYHEAD_F32   ? Halide::Type(Halide::Float(32))
                                  : tensor.dtype == POLYHEAD_I32 ? Halide::Type(Halide::Int(32))
                                                                 : Halide::Type(Halide::Bool());
        return Halide::Internal::Call::make(type, tensor.name, index, Halide::Internal::Call::PureExtern);
    };
    return scope;
}

uint32_t facts_of(const Expr &value) {
    return (Halide::Internal::expr_uses_var(value, batch_row) ? POLYHEAD_EXPRESSION_BATCH_ROW : 0) |
           (Halide::Internal::expr_uses_var(value, key_length) ? POLYHEAD_EXPRESSION_KEY_LENGTH : 0);
}

// Calls both functions once with variables. Returns a sentence when they give what no kernel can use.
std::string try_out(const ExpressionSource &source, const std::vector<ExpressionTensor> &tensors, LoadedSource *loaded) {
    const Scope scope = scope_for_source(scope_of_variables(tensors), tensors);
    try { // Halide's errors about an Expr
        const Expr score = source.score ? source.score(scope) : Expr(0.0f);
        const Expr mask = source.mask ? source.mask(scope) : Expr(Halide::cast<bool>(true));
        if (!score.defined() || score.type() != Halide::Float(32)) {
            return "score() gives " + type_of(score) + ", expected float32";
        }
        if (!mask.defined() || mask.type() != Halide::Bool()) {
            return "mask() gives " + type_of(mask) + ", expected bool";
        }
        loaded->score_facts = source.score ? std::optional(facts_of(score)) : std::nullopt;
        loaded->mask_facts = source.mask ? std::optional(facts_of(mask)) : std::nullopt;
    } catch (const std::exception &exception) {
        const std::string what = exception.what();
        return what.substr(0, what.find('\n'));
    }
    return "";
}

// "s_soft_threshold_0123456789abcdef": the file's name and its content.
std::string name_of(const std::string &file, const std::string &content) {
    std::string name = file.substr(file.find_last_of('/') + 1);
    name = name.substr(0, std::min<size_t>(name.find('.'), 24));
    for (char &c : name) {
        c = is_letter(c) || is_digit(c) ? c : '_';
    }
    return "s_" + name + "_" + hexadecimal(text_hash(content));
}

} // namespace

std::string load_expression_source(const std::string &file, const std::string &content, const std::string &library, LoadedSource *loaded) {
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
    loaded->name = name_of(file, content);
    loaded->text = std::string(source.declarations ? source.declarations() : "") + "\nsource " + loaded->name;
    know_source(loaded->name, {source.score ? std::make_shared<Called>(source.score, 0, std::vector<ExpressionTensor>()) : nullptr,
                               source.mask ? std::make_shared<Called>(source.mask, 0, std::vector<ExpressionTensor>()) : nullptr});
    Expression expression;
    const std::string refusal = Expression::parse(loaded->text, file + ", declarations()", &expression);
    if (!refusal.empty()) {
        return refusal;
    }
    const std::string trial = try_out(source, expression.tensors(), loaded);
    const auto called = [&](auto function, const std::optional<uint32_t> &facts) {
        return facts ? std::make_shared<Called>(function, *facts, expression.tensors()) : nullptr;
    };
    know_source(loaded->name, {called(source.score, loaded->score_facts), called(source.mask, loaded->mask_facts)});
    return trial.empty() ? "" : file + ": " + trial;
}

Expr value_of(const language::SourceFunction &function, const ExpressionScope &scope) {
    const auto &called = static_cast<const Called &>(function); // in the compiler there are no others
    return called.function(scope_for_source(scope, called.tensors));
}

} // namespace polyhead::gen
