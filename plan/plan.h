// From a Problem to planned Variants: frames, tilings from records or defaults, refusals.
#pragma once

#include <string>
#include <vector>

#include "frames/frame.h"

namespace polyhead::gen {

// One variant to be: which frame, for which target, with which numbers, for which query lengths (max 0 = no limit).
struct VariantPlan {
    const Frame *frame = nullptr;
    std::string target;
    Tiling tiling;
    int32_t min_seq_len_q = 0, max_seq_len_q = 0;
    std::string record;             // the tuning record that the tiling is from, if any
    std::string autoscheduler = {}; // one of Halide's and its parameters, "Adams2019 parallelism=2", instead of our schedule
    int32_t few_blocks_of = 0;      // queries of a block: the better one where a device has more multiprocessors than the call such blocks
    int32_t min_group_size = 0, max_group_size = 0; // query heads of a key/value head that it is for, where they are free; max 0 = no limit

    // What a CPU must have for it: the features of the target, and what products beyond them need.
    uint64_t cpu_features(const Problem &problem) const;
    // "frame=NAME knob=value ...", and the record: the description of a variant.
    std::string text() const;
    // Sentences: what the numbers of the tiling mean on a machine of the target.
    std::vector<std::string> reasons(const Problem &problem) const;
};

// Where tilings are looked up when the user gives none.
struct TuningChoice {
    std::string file;    // the user's own records, which win over the shipped ones; may be empty
    bool records = true; // false: the defaults
};

// The user's file of records: the given one or $POLYHEAD_TUNED; empty when there is none, or when $POLYHEAD_TUNED is "off".
std::string records_file(const TuningChoice &choice);

// A target string in full: "host" and "host-FEATURE..." become this machine as far as POLYHEAD_CPU_FEATURES allows, levels of the psABI
// such as "x86-64-v3" become Halide targets, others stay. Where that variable is not understood *error has a sentence and the text stays as
// it is.
std::string resolve_target(const std::string &target, std::string *error);

// One sentence when no kernel may be made for a target: it is not one, has features that kernels cannot have, or, unless `untested`, its
// code was never run. Otherwise *full has the target in full.
std::string refuse_target(const std::string &word, bool untested, std::string *full);

// The targets of a text such as "x86-64-v3,x86-64" or "portable" (named_targets.h), in full, for one problem. Returns one sentence or
// nothing.
std::string read_targets(const std::string &text, bool untested, const Problem &problem, std::vector<std::string> *targets);

// The variants that serve a complete problem, best first: targets in the order given, within a target by query length.
// tiling_overrides is "knob=value ..."; "frame=NAME" keeps one frame only, and is the only way to the frame "plain";
// "autoscheduler=NAME autoscheduler.FIELD=VALUE" leaves the schedule to Halide, for comparisons only; with overrides no tuning record is
// used. On refusal *error has one sentence. *complaints, if given, gets one for each entry of the user's records that is not used.
std::vector<VariantPlan> plan_variants(const Problem &problem, const std::vector<std::string> &targets, const std::string &tiling_overrides,
                                       std::string *error, const TuningChoice &tuning = {}, std::vector<std::string> *complaints = nullptr);

} // namespace polyhead::gen
