// The points that a tuner may try: values of each knob for one frame, problem and machine, and why a combination is left out.
#pragma once

#include <string>
#include <vector>

#include "../frames/frame.h"

namespace polyhead::gen {

// Values of one knob, ascending; the default is among them. 0 means "chosen by the schedule".
struct KnobValues {
    std::string knob, meaning;
    std::vector<int> values;
};

// The knobs that this frame reads for this problem, with the values that the table of knobs lists. Knobs that change rounding errors
// (reduction_block) or meaning (unscheduled) are left out.
std::vector<KnobValues> tiling_space(const Frame &frame, const Problem &problem, const Machine &machine);

// Why a point of the space is not tried, or empty: first the result of tiling_refusal(), then tilings that could be compiled but
// only spill or compute padding. The tiling has its defaults filled in.
std::string candidate_refusal(const Frame &frame, const Problem &problem, const Tiling &tiling, const Machine &machine);

} // namespace polyhead::gen
