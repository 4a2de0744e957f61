// From planned variants to compiled ones: ahead-of-time objects, in-process callables, the runtime archive.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../plan/plan.h"
#include "../plan/variant_facts.h"
#include "../runtime/kernel_calls.h"

namespace polyhead::gen {

// A variant compiled into this process; `call` and `context` are those of polyhead_variant.
struct InProcessVariant : VariantFacts {
    int (*call)(void *context, void **argv) = nullptr;
    std::shared_ptr<void> context;
};

// Writes the object file, and beside OBJECT.o the listings OBJECT.stmt and OBJECT.s when extra_outputs has "stmt" or "assembly".
CompiledVariant compile_variant(const Problem &problem, const VariantPlan &plan, const std::string &symbol, const std::string &object_path,
                                const std::vector<std::string> &extra_outputs, std::string *error);

// The code that would be compiled, before LLVM sees it, as in lowered_text().
std::string lower_variant(const Problem &problem, const VariantPlan &plan, std::string *error);

// libpolyhead is not linked to the generator, so its caller says where the functions are that code calls.
InProcessVariant compile_in_process(const Problem &problem, const VariantPlan &plan, const runtime::KernelCalls &calls, std::string *error);

// Writes the Halide runtime of a target as an object. Returns a sentence or nothing.
std::string compile_runtime(const std::string &path, const std::string &target);

// What was thrown, in one sentence; for the inside of a catch (...), as Halide's errors are no std::exception.
std::string thrown_sentence();

} // namespace polyhead::gen
