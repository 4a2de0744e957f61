// Keeps the lowered statement of a kernel.
#include "lowering.h"

namespace polyhead::gen {
namespace {

thread_local Lowering *current = nullptr;

// Looks, and changes nothing.
class Keep : public Halide::Internal::IRMutator {
public:
    explicit Keep(Halide::Internal::Stmt *statement) : statement_(statement) {}

    Halide::Internal::Stmt mutate(const Halide::Internal::Stmt &whole) override { return *statement_ = whole; }

private:
    Halide::Internal::Stmt *statement_;
};

} // namespace

Lowering::Lowering() {
    current = this;
}

Lowering::~Lowering() {
    current = nullptr;
}

void keep_lowered(Halide::Pipeline pipeline) {
    if (current) {
        pipeline.add_custom_lowering_pass(new Keep(&current->statement_));
    }
}

} // namespace polyhead::gen
