// The code of a device is a buffer of Halide's module, which functions for the host name together with its size.
#include "device_code.h"

#include <cstring>
#include <map>
#include <stdexcept>

#include "../machines/machines.h"
#include "device_calls.h"

namespace polyhead::gen {

using namespace Halide::Internal;

namespace {

using Buffers = std::map<std::string, Halide::Buffer<>>;

// The text of a buffer with device code; empty where it is binary, or Halide's place for what a device has loaded.
std::string text_of(const Halide::Buffer<> &code) {
    const std::string text = device_bytes(code);
    return text.find('\0') == std::string::npos ? text : "";
}

Halide::Buffer<> buffer_of(const std::string &text, const std::string &name) {
    Halide::Buffer<uint8_t> buffer(int(text.size() + 1), name);
    std::memcpy(buffer.data(), text.c_str(), text.size() + 1);
    return buffer;
}

// Functions for the host, with other buffers in the place of those of the same names.
class NamesBuffers : public IRMutator {
public:
    explicit NamesBuffers(const Buffers &buffers) : buffers_(buffers) {}

private:
    using IRMutator::visit;

    const Buffers &buffers_;

    const Halide::Buffer<> *find(const Halide::Expr &value) const {
        const auto *const variable = value.as<Variable>();
        const auto found = variable && variable->image.defined() ? buffers_.find(variable->image.name()) : buffers_.end();
        return found == buffers_.end() ? nullptr : &found->second;
    }

    Halide::Expr visit(const Variable *op) override {
        const Halide::Buffer<> *const buffer = find(op);
        return buffer ? Variable::make(op->type, op->name, *buffer) : Halide::Expr(op);
    }

    // halide_NAME_initialize_kernels(..., the code, its bytes)
    Halide::Expr visit(const Call *op) override {
        const Halide::Expr call = IRMutator::visit(op);
        const std::string end = "_initialize_kernels";
        const bool loads = op->name.size() > end.size() && op->name.compare(op->name.size() - end.size(), end.size(), end) == 0;
        if (!loads) {
            return call;
        }
        SeesBuffer seen(*this);
        for (const Halide::Expr &argument : op->args) {
            argument.accept(&seen);
        }
        if (!seen.found) {
            return call;
        }
        std::vector<Halide::Expr> arguments = call.as<Call>()->args;
        arguments.back() = make_const(arguments.back().type(), int64_t(seen.found->size_in_bytes()));
        return Call::make(op->type, op->name, arguments, op->call_type, op->func, op->value_index, op->image, op->param);
    }

    // Which buffer an expression names.
    struct SeesBuffer : IRVisitor {
        explicit SeesBuffer(const NamesBuffers &of_) : of(of_) {}
        using IRVisitor::visit;
        void visit(const Variable *op) override { found = of.find(op) ? of.find(op) : found; }
        const NamesBuffers &of;
        const Halide::Buffer<> *found = nullptr;
    };
};

// The line of PTX that begins with this word becomes another one.
void replace_line(const std::string &word, const std::string &line, std::string *text) {
    const size_t at = text->find("\n" + word);
    if (at == std::string::npos) {
        throw std::runtime_error("device code: a module of PTX has no line " + word + ", expected one");
    }
    text->replace(at + 1, text->find('\n', at + 1) - at - 1, line);
}

Halide::Module for_only_capability(const Halide::Module &module, const Stmt &, const Machine &machine) {
    const ExactCapability *only = machine.exact ? exact_capability(machine.capability) : nullptr;
    if (!only) {
        return module;
    }
    return with_device_text(module, [&](const std::string &text) {
        std::string changed = text;
        replace_line(".version ", only->version, &changed);
        replace_line(".target ", only->target, &changed);
        return changed;
    });
}

} // namespace

std::string device_bytes(const Halide::Buffer<> &code) {
    std::string bytes(reinterpret_cast<const char *>(code.data()), code.size_in_bytes());
    bytes.erase(bytes.find_last_not_of('\0') + 1);
    return bytes;
}

const std::vector<DevicePass> &device_passes() {
    static const std::vector<DevicePass> passes = {
        {"instructions that Halide does not write",
         [](const Halide::Module &module, const Stmt &lowered, const Machine &) { return with_device_instructions(module, lowered); }},
        {"a capability that Halide has no name for", for_only_capability},
    };
    return passes;
}

Halide::Module with_device_text(const Halide::Module &module, const DeviceText &change) {
    Halide::Module changed(module.name(), module.target(), module.get_metadata_name_map());
    Buffers buffers;
    for (const Halide::Buffer<> &code : module.buffers()) {
        const std::string text = text_of(code);
        if (!text.empty()) {
            buffers[code.name()] = buffer_of(change(text), code.name());
        }
        changed.append(text.empty() ? code : buffers.at(code.name()));
    }
    NamesBuffers names(buffers);
    for (LoweredFunc function : module.functions()) {
        function.body = names.mutate(function.body);
        changed.append(function);
    }
    return changed;
}

Halide::Module after_device_passes(const Halide::Module &module, const Stmt &lowered, const Machine &machine) {
    Halide::Module changed = module;
    for (const DevicePass &pass : device_passes()) {
        changed = pass.run(changed, lowered, machine);
    }
    return changed;
}

} // namespace polyhead::gen
