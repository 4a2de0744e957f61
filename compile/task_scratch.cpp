// What a task of a kernel takes from the allocator, read off the lowered code.
#include "task_scratch.h"

#include <algorithm>
#include <string>
#include <vector>

namespace polyhead::gen {

using namespace Halide::Internal;

namespace {

// Halide puts an allocation of a constant size on the stack, up to this size.
constexpr int64_t most_on_stack = 16 * 1024;

// Follows allocations and frees of a task in the order of the code. The runtime keeps the blocks of a thread on a stack: one that is freed
// below others stays until they are.
class HeldByTask : public IRVisitor {
public:
    int64_t most() const { return most_; }

private:
    using IRVisitor::visit;

    bool in_task_ = false;
    struct Block {
        std::string name;
        int64_t bytes;
        bool freed;
    };
    std::vector<Block> stack_;
    int64_t most_ = 0;

    static int64_t bytes_of(const Allocate *op) {
        const int64_t bytes = bytes_at_most(op);
        const bool on_stack = op->memory_type == Halide::MemoryType::Register ||
                              (op->memory_type != Halide::MemoryType::Heap && op->constant_allocation_size() > 0 && bytes <= most_on_stack);
        return on_stack ? 0 : bytes + int64_t(op->padding) * op->type.bytes();
    }

    void take(const std::string &name, int64_t bytes) {
        if (bytes > 0) {
            stack_.push_back({name, bytes, false});
        }
        int64_t held = 0;
        for (const Block &block : stack_) {
            held += block.bytes;
        }
        most_ = std::max(most_, held);
    }

    void release(const std::string &name) {
        const auto found = std::find_if(stack_.rbegin(), stack_.rend(), [&](const Block &b) { return b.name == name && !b.freed; });
        if (found != stack_.rend()) {
            found->freed = true;
        }
        while (!stack_.empty() && stack_.back().freed) {
            stack_.pop_back();
        }
    }

    void visit(const Allocate *op) override {
        const size_t below = stack_.size();
        if (in_task_) {
            take(op->name, bytes_of(op));
        }
        IRVisitor::visit(op);
        stack_.resize(std::min(stack_.size(), below)); // at the end of its scope it is free, and so is what came later
    }

    void visit(const Free *op) override { release(op->name); }

    void visit(const For *op) override {
        const bool was_in_task = in_task_;
        in_task_ = in_task_ || op->for_type == ForType::Parallel;
        IRVisitor::visit(op);
        in_task_ = was_in_task;
    }

    void visit(const IfThenElse *op) override {
        op->condition.accept(this);
        const auto before = stack_;
        op->then_case.accept(this);
        if (op->else_case.defined()) {
            stack_ = before;
            op->else_case.accept(this);
        }
    }
};

} // namespace

int64_t bytes_at_most(const Allocate *op) {
    int64_t bytes = op->type.bytes();
    for (const Halide::Expr &extent : op->extents) {
        const Halide::Expr bound = find_constant_bound(extent, Direction::Upper);
        bytes *= bound.defined() ? as_const_int(bound).value_or(1) : 1;
    }
    return bytes;
}

int64_t task_scratch(const Halide::Internal::Stmt &lowered) {
    HeldByTask held;
    if (lowered.defined()) {
        lowered.accept(&held);
    }
    return held.most();
}

} // namespace polyhead::gen
