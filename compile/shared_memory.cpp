// The shared memory of a block, read off the lowered code.
#include "shared_memory.h"

#include <algorithm>

#include "device_calls.h"
#include "task_scratch.h"

namespace polyhead::gen {

namespace {

using namespace Halide::Internal;

class SharedByBlock : public IRVisitor {
public:
    int64_t most() const { return most_; }

private:
    using IRVisitor::visit;

    int64_t held_ = 0, most_ = 0;

    void visit(const Allocate *op) override {
        const int64_t bytes = op->memory_type == Halide::MemoryType::GPUShared ? bytes_at_most(op) : 0;
        held_ += bytes;
        most_ = std::max(most_, held_);
        IRVisitor::visit(op);
        held_ -= bytes;
    }
};

} // namespace

int32_t shared_memory(const Halide::Internal::Stmt &lowered) {
    SharedByBlock held;
    if (lowered.defined()) {
        lowered.accept(&held);
    }
    // A kernel has the one kind or the other, and kernels of a call run one after the other.
    return static_cast<int32_t>(std::min<int64_t>(std::max<int64_t>(held.most(), device_shared_bytes(lowered)), INT32_MAX));
}

} // namespace polyhead::gen
