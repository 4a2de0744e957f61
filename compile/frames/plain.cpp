// The frame "plain": attention as a textbook writes it, without a schedule of ours.
#include "../../generators/frames/plain.h"
#include "frame_builder.h"

namespace polyhead::gen {
namespace {

class PlainBuilder : public FrameBuilder {
public:
    const char *name() const override { return "plain"; }
    std::shared_ptr<AttentionStages> make(const AttentionFormulas &formulas, const Tiling &, const Machine &) const override {
        return std::make_shared<PlainStages>(plain(formulas));
    }
    bool schedule(KernelStages *, const Tiling &, const Machine &) const override { return false; }
};

} // namespace

const FrameBuilder &plain_builder() {
    static const PlainBuilder builder;
    return builder;
}

} // namespace polyhead::gen
