// Names of targets that Halide does not know: the levels of the x86-64 psABI, and `portable`, which stands for several targets.
#ifndef POLYHEAD_PLAN_NAMED_TARGETS_H
#define POLYHEAD_PLAN_NAMED_TARGETS_H

#include <cstdint>
#include <string>
#include <vector>

#include "../contract/cpu_features.h"
#include "target.h"

namespace polyhead::gen {

// A level of the psABI, by the CPU features that Halide's code for it uses. A CPU of this level has more; dispatch asks for these alone.
struct PsabiLevel {
    const char *name;
    uint64_t cpu_features;
};
inline constexpr PsabiLevel psabi_levels[] = {
    {"x86-64", 0},
    {"x86-64-v2", contract::cpu_level::sse41},
    {"x86-64-v3", contract::cpu_level::avx2},
    {"x86-64-v4", contract::cpu_level::skylake},
};

// The Halide target of a level of the psABI, such as "x86-64-v3" or "x86-64-v3-enable_backtraces"; empty: the text names none.
std::string psabi_target(const std::string &text);

// The lowest level on whose CPUs code of a target runs; null: on no level, or no code for x86-64 CPUs.
const char *psabi_level_of(const Target &target);

// The targets that one word stands for, best first: `portable` for several, any other word for itself. Which ones depends on the problem.
std::vector<std::string> targets_of_word(const std::string &word, const polyhead_problem &problem);

} // namespace polyhead::gen
#endif
