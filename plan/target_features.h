// Which features, processors and vector lengths a target may name.
#ifndef POLYHEAD_PLAN_TARGET_FEATURES_H
#define POLYHEAD_PLAN_TARGET_FEATURES_H

#include <cstdint>
#include <set>
#include <string>

#include "target.h"

namespace polyhead::gen {

// untested: code with it was never run, so --untested-target must ask for it. refused: kernels with it do not link, print, or are wrong.
enum class FeatureUse { allowed, untested, refused };

// One feature of Halide's.
struct FeatureRule {
    const char *name;
    const char *architecture; // that has it; null: all
    FeatureUse use;
    const char *reason;
    uint64_t cpu_features; // bits of polyhead_variant.cpu_features whose instructions LLVM may use then
};

// The row of a feature, or null: a feature that the table does not know.
const FeatureRule *feature_rule(const std::string &name);

// One sentence when no kernel can be made for the target; otherwise nothing.
std::string refused_features(const std::string &text, const Target &target);

// What was never run about the target, such as "riscv-64" or "sve2"; otherwise nothing.
std::string untested_part(const Target &target);

// The allowed features whose code needs some of these CPU features and no others.
std::set<std::string> features_within(const std::string &architecture, uint64_t cpu_features);

} // namespace polyhead::gen
#endif
