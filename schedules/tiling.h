// Tiling: every number of frame and schedule, each a generator parameter and a column of the tuning record. 0 = the default.
#pragma once

#include <string>

#include <optional>

#include "../generators/linear.h"
#include "../generators/problem.h"
#include "machine.h"
#include "tiling_knobs.h"

namespace polyhead::gen {

struct Tiling {
#define POLYHEAD_FIELD(name, meaning, ...) int name = 0;
    POLYHEAD_TILING_KNOBS(POLYHEAD_FIELD)
#undef POLYHEAD_FIELD

    // "q_tile=32 kv_tile=128 ...", knobs that are not 0.
    std::string to_string() const;
    // Sets one knob; returns a sentence when there is no such knob or the value is not a whole number >= 0.
    std::string set(const std::string &knob, const std::string &value);
    // Sets all of "knob=value knob=value ...".
    std::string set_all(const std::string &text);
};

// Fills the knobs that are 0 for this frame, problem and machine; sets those to 0 that the frame does not read.
Tiling default_tiling(const std::string &frame, const Problem &problem, const Machine &machine, Tiling overrides);
// Why the frame cannot be built with this tiling, or empty: a knob that the table of knobs refuses, or several that together take more
// registers, bytes or code than makes sense.
std::string tiling_refusal(const std::string &frame, const Problem &problem, const Tiling &tiling, const Machine &machine);
// Shared memory of a block of the frame "block tiles".
int shared_bytes(const Tiling &tiling, const Problem &problem);
// How a GPU's threads share a linear layer; nothing on a CPU.
std::optional<ThreadBlocking> thread_blocking(const Tiling &tiling, const Machine &machine);
// Registers allow the frame "thread rows" for these head dims.
bool thread_rows_fit(const Problem &problem, const Machine &machine);

} // namespace polyhead::gen
