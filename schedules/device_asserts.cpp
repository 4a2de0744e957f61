// Takes assertions out of device loops.
#include "device_asserts.h"

namespace polyhead::gen {

namespace {

using namespace Halide::Internal;

class DropAsserts : public IRMutator {
    using IRMutator::visit;

    int device_loops_ = 0;

    Stmt visit(const For *loop) override {
        device_loops_ += is_gpu(loop->for_type) ? 1 : 0;
        const Stmt result = IRMutator::visit(loop);
        device_loops_ -= is_gpu(loop->for_type) ? 1 : 0;
        return result;
    }

    Stmt visit(const AssertStmt *assertion) override { return device_loops_ > 0 ? Evaluate::make(0) : Stmt(assertion); }
};

} // namespace

void drop_device_asserts(Halide::Pipeline pipeline) {
    pipeline.add_custom_lowering_pass(new DropAsserts);
}

} // namespace polyhead::gen
