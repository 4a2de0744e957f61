// Calls of device instructions in lowered code and in the functions of the host.
#include "device_calls.h"

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "../machines/device_calls.h"
#include "device_code.h"

namespace polyhead::gen {

using namespace Halide::Internal;

namespace {

class Calls : public IRVisitor {
public:
    CallCounts counts;
    int shared_bytes = 0;

private:
    using IRVisitor::visit;

    void visit(const Call *op) override {
        const std::string prefix = device_call_prefix;
        if (op->name.compare(0, prefix.size(), prefix) == 0) {
            const std::string name = op->name.substr(prefix.size());
            counts[name]++;
            const auto bytes = op->args.empty() ? std::optional<int64_t>() : as_const_int(op->args[0]);
            shared_bytes = std::max(shared_bytes, name == "shared_memory" && bytes ? static_cast<int>(*bytes) : 0);
        }
        IRVisitor::visit(op);
    }
};

// halide_cuda_run(..., kernel, blocks x 3, threads x 3, shared bytes, bytes of arguments, arguments, which are buffers)
constexpr size_t kernel_from_end = 11, threads_from_end = 7, shared_from_end = 4;
bool launches(const Call *op) {
    return op->name == "halide_cuda_run" && op->args.size() >= kernel_from_end;
}
std::string kernel_of(const Call *op) {
    const auto *const name = op->args[op->args.size() - kernel_from_end].as<StringImm>();
    return name ? name->value : "";
}

class Launches : public IRVisitor {
public:
    std::map<std::string, int> threads; // of the kernels that always have as many

private:
    using IRVisitor::visit;

    void visit(const Call *op) override {
        if (launches(op)) {
            int64_t count = 1;
            for (size_t i = 0; i < 3; i++) {
                const auto extent = as_const_int(op->args[op->args.size() - threads_from_end + i]);
                count *= extent ? *extent : 0;
            }
            if (count > 0) {
                threads[kernel_of(op)] = static_cast<int>(count);
            }
        }
        IRVisitor::visit(op);
    }
};

class GivesShared : public IRMutator {
public:
    explicit GivesShared(const std::map<std::string, int> &bytes) : bytes_(bytes) {}

private:
    using IRMutator::visit;

    const std::map<std::string, int> &bytes_;

    Halide::Expr visit(const Call *op) override {
        const Halide::Expr call = IRMutator::visit(op);
        const auto found = launches(op) ? bytes_.find(kernel_of(op)) : bytes_.end();
        if (found == bytes_.end() || found->second == 0) {
            return call;
        }
        std::vector<Halide::Expr> arguments = call.as<Call>()->args;
        Halide::Expr &given = arguments[arguments.size() - shared_from_end];
        if (!is_const_zero(given)) {
            throw std::runtime_error("device code: the kernel " + kernel_of(op) +
                                     " has shared memory of Halide's own, which begins at address 0 as that of the device calls may");
        }
        given = make_const(given.type(), found->second);
        return Call::make(op->type, op->name, arguments, op->call_type, op->func, op->value_index, op->image, op->param);
    }
};

Calls calls_of(const Stmt &lowered) {
    Calls calls;
    if (lowered.defined()) {
        lowered.accept(&calls);
    }
    return calls;
}

} // namespace

CallCounts count_device_calls(const Stmt &lowered) {
    return calls_of(lowered).counts;
}

int device_shared_bytes(const Stmt &lowered) {
    return calls_of(lowered).shared_bytes;
}

Halide::Module with_device_instructions(const Halide::Module &module, const Stmt &lowered) {
    const CallCounts counts = count_device_calls(lowered);
    if (counts.empty()) {
        return module;
    }
    Launches launched;
    for (const LoweredFunc &function : module.functions()) {
        function.body.accept(&launched);
    }
    std::map<std::string, int> shared_bytes;
    const Halide::Module written = with_device_text(module, [&](const std::string &text) {
        WrittenCode code = with_instructions(text, counts, launched.threads);
        shared_bytes = code.shared_bytes;
        return code.text;
    });
    Halide::Module changed(written.name(), written.target(), written.get_metadata_name_map());
    for (const Halide::Buffer<> &buffer : written.buffers()) {
        changed.append(buffer);
    }
    GivesShared gives(shared_bytes);
    for (LoweredFunc function : written.functions()) {
        function.body = gives.mutate(function.body);
        changed.append(function);
    }
    return changed;
}

} // namespace polyhead::gen
