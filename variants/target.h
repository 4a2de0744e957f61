// Target strings as Halide targets, and the requirements of a target for a CPU.
#ifndef POLYHEAD_GENERATORS_TARGET_H
#define POLYHEAD_GENERATORS_TARGET_H

#include <cstdint>
#include <string>

#include <Halide.h>

#include "../machines/machine.h"

namespace polyhead::gen {

// A complete target, `host` resolved; on refusal false, and *error has one sentence.
bool parse_target(const std::string &text, Halide::Target *target, std::string *error);

// The row of the machine that a target names (machines/machines.h).
Machine machine_of(const Halide::Target &target);
// The kind of machine that measured tilings are shared within: "x86-64-avx512", "x86-64-avx512_amx", "x86-64-avx512_zen4", "x86-64-avx2",
// "cuda" ...
std::string target_class(const Halide::Target &target);

// Bits of polyhead_variant.cpu_features that code for this target needs.
uint64_t cpu_features_of(const Halide::Target &target);

// As far as POLYHEAD_CPU_FEATURES allows; the operating system is not asked.
bool this_cpu_has_amx();

} // namespace polyhead::gen
#endif
