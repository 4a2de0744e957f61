// The limits of the compiler, and where they are set.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace polyhead::tools {

// What the compiler may take for one variant; 0: no limit.
struct Limits {
    double seconds = 60; // of processor time, so that a busy machine changes nothing
    int64_t megabytes = 2048;
    // Called every few milliseconds while the compiler works; may throw, which ends the compiler.
    std::function<void()> while_waiting = nullptr;
};

// The defaults, or the values of POLYHEAD_LIMIT_SECONDS and POLYHEAD_LIMIT_MEGABYTES; returns a sentence when these are not numbers.
std::string read_limits(Limits *limits);
// One limit as text; false when it is no number from 0.
bool read_limit(const std::string &text, double *value);

} // namespace polyhead::tools
