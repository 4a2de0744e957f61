// Which of Halide's features, processors and vector lengths a target may name.
#ifndef POLYHEAD_GENERATORS_TARGET_FEATURES_H
#define POLYHEAD_GENERATORS_TARGET_FEATURES_H

#include <string>

#include <Halide.h>

namespace polyhead::gen {

// untested: code with it was never run, so --untested-target must ask for it. refused: kernels with it do not link, print, or are wrong.
enum class FeatureUse { allowed, untested, refused };

struct FeatureRule {
    Halide::Target::Feature feature;
    FeatureUse use;
    const char *reason;
};

// The row of a feature, or null: a feature of a Halide that the table does not know.
const FeatureRule *feature_rule(Halide::Target::Feature feature);

// One sentence when no kernel can be made for the target; otherwise nothing.
std::string refused_features(const std::string &text, const Halide::Target &target);

// What was never run about the target, such as "riscv-64" or "sve2"; otherwise nothing.
std::string untested_part(const Halide::Target &target);

// The target without the features that are not allowed.
Halide::Target with_allowed_features(const Halide::Target &target);

} // namespace polyhead::gen
#endif
