// The table of knobs applied to a frame, a problem and a machine.
#pragma once

#include <string>
#include <vector>

#include "frames/frame.h"

namespace polyhead::gen {

// How a frame reads this knob for a problem on a machine; null when it does not.
const KnobUse *use_of(const Knob &knob, const Frame &frame, const Problem &problem, const Machine &machine);
// Sets the knobs to 0 that the frame does not read.
void forget_unread(const Frame &frame, const Problem &problem, const Machine &machine, Tiling *tiling);
// Knobs that are set and that no frame reads on its machine, in one sentence; empty when there are none.
struct FrameOnMachine {
    const Frame *frame;
    Machine machine;
};
std::string unread_knobs(const std::vector<FrameOnMachine> &on, const Problem &problem, const Tiling &tiling);
// The first knob beyond its range, or that does not divide what it must, in one sentence.
std::string knob_refusal(const Frame &frame, const Problem &problem, const Tiling &tiling, const Machine &machine);
// Only the first of the two: all that can be checked without the machine.
std::string range_refusal(const Frame &frame, const Problem &problem, const Tiling &tiling, const Machine &machine);
// The values that a tuner tries, ascending, and the default among them.
std::vector<int> values_of(const KnobUse &use, const Problem &problem, const Machine &machine, int default_value);
// The table for people: lines of help, and in Markdown.
std::string knobs_help();
std::string knobs_markdown();

} // namespace polyhead::gen
