// What makes a frame of plan/frames/: its stages, and how they are scheduled.
#pragma once

#include <memory>

#include "../../generators/frames/attention_stages.h"
#include "../../plan/frames/frame.h"

namespace polyhead::gen {

struct KernelStages;

class FrameBuilder {
public:
    virtual ~FrameBuilder() = default;

    virtual const char *name() const = 0; // the frame's
    virtual std::shared_ptr<AttentionStages> make(const AttentionFormulas &, const Tiling &, const Machine &) const = 0;
    // Schedules its stages and what they write. False: there is no schedule, every Func stays at root.
    virtual bool schedule(KernelStages *, const Tiling &, const Machine &) const = 0;
};

// Of a frame whose problem attends.
const FrameBuilder &builder_of(const Frame &frame);

} // namespace polyhead::gen
