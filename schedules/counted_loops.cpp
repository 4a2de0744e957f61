// Loops of a device that end with their counts.
#include "counted_loops.h"

#include <stdexcept>
#include <string>

#include "../generators/frames/warp_tiles.h"

namespace polyhead::gen {

using namespace Halide::Internal;

namespace {

bool is_counted(const std::string &loop) {
    return loop.find(counted_chunks) != std::string::npos;
}

// What the variable of a loop is compared with, where that is the value of a Func: a load.
class FindsCount : public IRVisitor {
public:
    explicit FindsCount(const std::string &loop) : loop_(loop) {}
    Halide::Expr count;

private:
    using IRVisitor::visit;

    void visit(const IfThenElse *op) override {
        const LT *less = op->condition.as<LT>();
        const Variable *variable = less ? less->a.as<Variable>() : nullptr;
        if (variable && variable->name == loop_ && less->b.as<Load>()) {
            count = less->b;
        }
        IRVisitor::visit(op);
    }

    const std::string &loop_;
};

class FindsLoad : public IRVisitor {
public:
    explicit FindsLoad(const Scope<Halide::Expr> &lets) : lets_(lets) {}
    bool found = false;

private:
    using IRVisitor::visit;

    void visit(const Load *) override { found = true; }
    void visit(const Variable *op) override {
        if (lets_.contains(op->name)) {
            lets_.get(op->name).accept(this);
        }
    }

    const Scope<Halide::Expr> &lets_;
};

class EndsCounted : public IRMutator {
    using IRMutator::visit;

    Scope<Halide::Expr> lets_;

    Stmt visit(const LetStmt *op) override {
        const ScopedBinding<Halide::Expr> bound(lets_, op->name, op->value);
        return IRMutator::visit(op);
    }

    Stmt visit(const For *op) override {
        const Stmt loop = IRMutator::visit(op);
        op = loop.as<For>();
        if (!op || !is_counted(op->name)) {
            return loop;
        }
        FindsCount finds(op->name);
        op->body.accept(&finds);
        if (finds.count.defined()) {
            const Halide::Expr end = Halide::max(Halide::min(op->extent, finds.count - op->min), 0);
            return For::make(op->name, op->min, end, op->for_type, op->partition_policy, op->device_api, op->body);
        }
        // The condition was simplified away because the loop ends there.
        FindsLoad load(lets_);
        op->extent.accept(&load);
        if (!load.found) {
            throw std::runtime_error("the loop " + op->name + " has no count");
        }
        return loop;
    }
};

} // namespace

void end_counted_loops(Halide::Pipeline pipeline) {
    pipeline.add_custom_lowering_pass(new EndsCounted);
}

} // namespace polyhead::gen
