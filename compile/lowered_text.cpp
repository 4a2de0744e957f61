// Prints lowered code with its names numbered.
#include "lowered_text.h"

#include <algorithm>
#include <map>
#include <set>

#include "../plan/text.h"
#include "device_code.h"

namespace polyhead::gen {
namespace {

using namespace Halide::Internal;

// The names that a statement declares or uses.
class Names : public IRGraphVisitor {
public:
    std::set<std::string> found;

private:
    using IRGraphVisitor::visit;

    void visit(const Variable *op) override { take(op); }
    void visit(const Let *op) override { take(op); }
    void visit(const LetStmt *op) override { take(op); }
    void visit(const For *op) override { take(op); }
    void visit(const Allocate *op) override { take(op); }
    void visit(const Free *op) override { take(op); }
    void visit(const ProducerConsumer *op) override { take(op); }
    void visit(const Load *op) override { take(op); }
    void visit(const Store *op) override { take(op); }
    template <typename Node> void take(const Node *op) {
        found.insert(op->name);
        IRGraphVisitor::visit(op);
    }
};

// Numbers names in the order in which they are met.
class Numbers {
public:
    std::string of(const std::string &name) { return "n" + std::to_string(numbers_.emplace(name, numbers_.size()).first->second); }

private:
    std::map<std::string, size_t> numbers_;
};

bool starts_name(char c) {
    return is_letter(c) || c == '_';
}

// Halide's names have dots and dollars in them.
bool continues_name(char c) {
    return starts_name(c) || is_digit(c) || c == '.' || c == '$';
}

// Replaces every word that is a name.
template <typename IsName> std::string numbered(const std::string &text, const IsName &is_name) {
    Numbers numbers;
    std::string out;
    for (size_t i = 0; i < text.size();) {
        size_t end = i + 1;
        if (starts_name(text[i])) {
            while (end < text.size() && continues_name(text[end])) {
                end++;
            }
        }
        const std::string word = text.substr(i, end - i);
        out += end > i + 1 && is_name(word) ? numbers.of(word) : word;
        i = end;
    }
    return out;
}

std::string in_hexadecimal(const std::string &bytes) {
    constexpr char digits[] = "0123456789abcdef";
    constexpr size_t in_line = 32;
    std::string out;
    for (size_t i = 0; i < bytes.size(); i++) {
        const unsigned char byte = bytes[i];
        out += digits[byte >> 4];
        out += digits[byte & 15];
        out += (i + 1) % in_line == 0 || i + 1 == bytes.size() ? "\n" : "";
    }
    return out;
}

// In Halide's sources for devices the names of a kernel begin with an underscore, or have two of them. Functions that are called do not,
// and words of a language (__local) have nothing but letters behind two. PTX names parameters by the entry, and variables by numbers.
bool is_device_name(const std::string &word) {
    const bool of_language = word.compare(0, 2, "__") == 0 && std::all_of(word.begin() + 2, word.end(), is_letter);
    return !of_language && (word[0] == '_' || word.find("__") != std::string::npos);
}

std::string device_text(const Halide::Buffer<> &code) {
    const std::string text = device_bytes(code);
    if (text.find('\0') != std::string::npos) {
        return in_hexadecimal(text);
    }
    return numbered(text, is_device_name);
}

} // namespace

std::string lowered_text(const Stmt &statement, const Halide::Module &module) {
    Names names;
    statement.accept(&names);
    TextWriter printed;
    printed << statement;
    std::string text = "statement\n" + numbered(printed.str(), [&](const std::string &word) { return names.found.count(word) > 0; });
    for (const Halide::Buffer<> &code : module.buffers()) {
        const std::string of_device = device_text(code);
        text += of_device.empty() ? "" : "device code\n" + of_device; // empty: Halide's place for what a device has loaded
    }
    return text;
}

} // namespace polyhead::gen
