// Targets: what a string such as x86-64-linux-avx2-fma-f16c says, as Halide reads it, and the machine that it names.
#ifndef POLYHEAD_PLAN_TARGET_H
#define POLYHEAD_PLAN_TARGET_H

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "../machines/machine.h"

namespace polyhead::gen {

struct Target {
    std::string architecture, system; // "x86", "linux"
    int bits = 0;
    std::string tuning; // the processor that code is ordered for, "tune_znver4"; empty: none
    std::set<std::string> features;
    int vector_bits = 0; // 0: the target does not say

    bool has(const std::string &feature) const { return features.count(feature) != 0; }
    bool same_machine(const Target &other) const {
        return architecture == other.architecture && bits == other.bits && system == other.system;
    }
    // The least that code for such a machine can be compiled for.
    Target least() const;
    // The nearest one that Halide has a name for.
    Target for_halide() const;
    // As Halide writes it: parts in this order, features by name.
    std::string to_string() const;
};

// A complete target, `host` resolved; on refusal false, and *error has one sentence.
bool parse_target(const std::string &text, Target *target, std::string *error);
// Of a text that parse_target() takes.
Target parsed_target(const std::string &text);

// Architecture, bits and system of this machine.
Target this_system();

// What code is made for: a target that names the only capability to run some code is one for all other devices, and then one for that
// capability alone; every other target is itself.
std::vector<Target> parts_of(const Target &target);

// The row of the machine that a target names (machines/machines.h).
Machine machine_of(const Target &target);
// The kind of machine that measured tilings are shared within: "x86-64-avx512", "x86-64-avx512_amx", "x86-64-avx512_zen4", "x86-64-avx2",
// "cuda" ...
std::string target_class(const Target &target);

// Bits of polyhead_variant.cpu_features that code for this target needs.
uint64_t cpu_features_of(const Target &target);

// Whether this CPU has all of these, as far as POLYHEAD_CPU_FEATURES and the operating system allow.
bool this_cpu_has(uint64_t cpu_features);

} // namespace polyhead::gen
#endif
