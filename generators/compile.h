// From a Problem to compiled Variants: planning, ahead-of-time objects, in-process callables, the runtime archive.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../schedules/tiling.h"
#include "problem.h"

namespace polyhead::gen {

// One variant to be: which frame, for which target, with which numbers, for which query lengths (max 0 = no limit).
struct VariantPlan {
    std::string frame, target;
    Tiling tiling;
    int32_t min_seq_len_q = 0, max_seq_len_q = 0;
    std::string record;             // the tuning record that the tiling is from, if any
    std::string autoscheduler = {}; // one of Halide's and its parameters, "Adams2019 parallelism=2", instead of our schedule

    // "frame=NAME knob=value ...", and the record: what a variant says of itself.
    std::string text() const;
};

// Where tilings are looked up when the user gives none.
struct TuningChoice {
    std::string file;    // the user's own records, which win over the shipped ones; may be empty
    bool records = true; // false: the defaults
};

// The user's file that is asked: his own or $POLYHEAD_TUNED; empty when there is none.
std::string records_file(const TuningChoice &choice);

// Facts of a compiled variant, as polyhead_variant wants them.
struct VariantFacts {
    polyhead_scratch scratch{};
    uint64_t cpu_features = 0;
    int32_t api = POLYHEAD_CPU, capability = 0, alignment = 0;
};

struct CompiledVariant : VariantFacts {
    std::string symbol, object_path;
};

// A variant compiled into this process; `call` and `context` are those of polyhead_variant.
struct InProcessVariant : VariantFacts {
    int (*call)(void *context, void **argv) = nullptr;
    std::shared_ptr<void> context;
};

// A target string in full: "host" and "host-FEATURE..." become this machine as far as f32 kernels gain by it and POLYHEAD_CPU_FEATURES
// allows, others stay. Where that variable is not understood *error has a sentence and the text stays as it is.
std::string resolve_target(const std::string &target, std::string *error);

// The variants that serve a complete problem, best first: targets in the order given, within a target by query length.
// tiling_overrides is "knob=value ..."; "frame=NAME" keeps one frame only, and is the only way to the frame "plain";
// "autoscheduler=NAME autoscheduler.FIELD=VALUE" leaves the schedule to Halide, in process only; with overrides no tuning record is
// asked. On refusal *error has one sentence. *complaints, if given, gets one for each entry of the user's records that is not used.
std::vector<VariantPlan> plan_variants(const Problem &problem, const std::vector<std::string> &targets, const std::string &tiling_overrides,
                                       std::string *error, const TuningChoice &tuning = {}, std::vector<std::string> *complaints = nullptr);

// Writes the object file, and beside OBJECT.o the listings OBJECT.stmt and OBJECT.s when extra_outputs has "stmt" or "assembly".
CompiledVariant compile_variant(const Problem &problem, const VariantPlan &plan, const std::string &symbol, const std::string &object_path,
                                const std::vector<std::string> &extra_outputs, std::string *error);

InProcessVariant compile_in_process(const Problem &problem, const VariantPlan &plan, std::string *error);

// Writes the Halide runtime of a target: an object when the path ends in .o, an archive otherwise. Returns a sentence or nothing.
std::string compile_runtime(const std::string &path, const std::string &target);

// What was thrown, in one sentence; for the inside of a catch (...), as Halide's errors are no std::exception.
std::string thrown_sentence();

} // namespace polyhead::gen
