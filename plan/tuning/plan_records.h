// Which tuning records a plan of variants takes: the user's own file, then the shipped ones, then the defaults.
#pragma once

#include <string>
#include <vector>

#include "../plan.h"
#include "tuned_records.h"

namespace polyhead::gen {

class RecordFinder {
public:
    // Reads the user's file; returns a sentence when it cannot be read.
    std::string open(const TuningChoice &choice);
    // Entries of the user's file that are not used.
    const std::vector<std::string> &complaints() const { return own_.complaints; }
    // The variants of one target: recorded ones, and those of `defaults` for query lengths that no record serves.
    std::vector<VariantPlan> apply(const Problem &problem, const Machine &machine, const std::string &target_class,
                                   const std::vector<VariantPlan> &defaults) const;

private:
    TuningChoice choice_;
    TunedRecords own_;
};

} // namespace polyhead::gen
