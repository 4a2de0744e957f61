// From planned variants to objects, and the runtime archive.
#pragma once

#include <string>
#include <vector>

#include "../plan/plan.h"
#include "../plan/variant_facts.h"

namespace polyhead::gen {

// Writes the object file, and beside OBJECT.o the listings OBJECT.stmt and OBJECT.s when extra_outputs has "stmt" or "assembly". What only
// serves comparisons (the frame plain, Halide's autoschedulers) is refused, unless the caller compares.
CompiledVariant compile_variant(const Problem &problem, const VariantPlan &plan, const std::string &symbol, const std::string &object_path,
                                const std::vector<std::string> &extra_outputs, bool compares, std::string *error);

// The code that would be compiled, before LLVM sees it, as in lowered_text().
std::string lower_variant(const Problem &problem, const VariantPlan &plan, std::string *error);

// Writes the Halide runtime of a target as an object. Returns a sentence or nothing.
std::string compile_runtime(const std::string &path, const std::string &target);

// What was thrown, in one sentence; for the inside of a catch (...), as Halide's errors are no std::exception.
std::string thrown_sentence();

} // namespace polyhead::gen
