// The frame "plain": attention as a textbook writes it, without a schedule of ours.
#include "../../contract/problem.h"
#include "frame.h"

namespace polyhead::gen {
namespace {

class Plain : public Frame {
public:
    const char *name() const override { return "plain"; }
    int schedule_version() const override { return 0; }
    bool serves(const Problem &p, const Machine &machine) const override {
        return !machine.gpu() && contract::computes_out(p) && p.dropout == 0;
    }
    bool wanted(const Problem &, const Machine &, bool) const override { return false; }
};

} // namespace

const Frame &plain_frame() {
    static const Plain frame;
    return frame;
}

} // namespace polyhead::gen
