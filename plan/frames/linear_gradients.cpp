// The frame "linear_gradients": gradients of a linear layer on CPUs.
#include "../../contract/problem.h"
#include "frame.h"

namespace polyhead::gen {
namespace {

class LinearGradients : public Frame {
public:
    const char *name() const override { return "linear_gradients"; }
    int schedule_version() const override { return 1; }
    KnobUser knob_user() const override { return KnobUser::linear_gradients; }
    bool serves(const Problem &p, const Machine &machine) const override {
        return !machine.gpu() && contract::is_backward(p) && !contract::attends(p);
    }
    bool wanted(const Problem &, const Machine &, bool) const override { return true; }
    void add_scratch(ScratchTerms *terms) const override { terms->add_linear_gradients(); }
};

} // namespace

const Frame &linear_gradients_frame() {
    static const LinearGradients frame;
    return frame;
}

} // namespace polyhead::gen
