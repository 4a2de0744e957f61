// Planned variants become code here.
#include "compile.h"

#include <algorithm>
#include <exception>

#include <Halide.h>

#include "../contract/dtypes.h"
#include "../contract/problem.h"
#include "../plan/language/expression.h"
#include "compiler_warnings.h"
#include "device_code.h"
#include "halide_target.h"
#include "kernel_generator.h"
#include "lowered_text.h"
#include "lowering.h"
#include "shared_memory.h"
#include "task_scratch.h"

namespace polyhead::gen {

namespace {

// What is read off the code while it is compiled.
void read_lowered(const Halide::Internal::Stmt &lowered, VariantFacts *facts) {
    facts->scratch.per_thread = task_scratch(lowered);
    facts->shared_bytes = shared_memory(lowered);
}

VariantFacts facts_of(const Problem &p, const VariantPlan &plan, const Target &target) {
    VariantFacts facts;
    const Machine machine = machine_of(target);
    facts.cpu_features = plan.cpu_features(p);
    facts.api = machine.device.api;
    facts.capability = machine.capability;
    facts.capability_exact = machine.exact;
    facts.few_blocks_of = plan.few_blocks_of;
    if (contract::by_heads(p) && plan.tiling.load_width > 1) {
        facts.alignment = plan.tiling.load_width * contract::dtype_bytes(p.dtype);
    }
    if (plan.tiling.warp_products != 0) {
        facts.alignment = WarpBlocking::copy;
    }
    facts.scratch = scratch_terms(*plan.frame, p, plan.tiling, machine);
    return facts;
}

bool reads_bytes(const Problem &p) {
    Expression expression;
    if (p.expression && p.expression[0]) {
        Expression::parse(p.expression, "expression", &expression); // a refusal is told elsewhere
    }
    const auto &tensors = expression.tensors();
    return p.mask == POLYHEAD_BOOLEAN_MASK ||
           std::any_of(tensors.begin(), tensors.end(), [](const ExpressionTensor &t) { return t.dtype == POLYHEAD_BOOL; });
}

// Asserts stay on: a failed allocation is a status, not a crash. Shapes are validated before the call, so no bounds query. The user
// context is the call to the runtime: its memory, its device, the text of its error.
Halide::Target kernel_target(const Target &given, const Problem &p) {
    using Feature = Halide::Target::Feature;
    Halide::Target target = halide_target(given);
    // Halide divides by a constant through a wider product; the key/value head of a head is such a quotient.
    const int group_size = contract::group_size_of(p);
    if (target.has_feature(Feature::Vulkan) && (group_size & (group_size - 1)) != 0) {
        target.set_feature(Feature::VulkanInt64);
    }
    if (target.has_feature(Feature::Vulkan) && reads_bytes(p)) {
        target.set_feature(Feature::VulkanInt8);
    }
    target.set_feature(Feature::NoBoundsQuery);
    target.set_feature(Feature::UserContext);
    return target;
}

} // namespace

CompiledVariant compile_variant(const Problem &p, const VariantPlan &plan, const std::string &symbol, const std::string &object_path,
                                const std::vector<std::string> &extra_outputs, bool compares, std::string *error) {
    CompiledVariant out;
    Target target;
    error->clear();
    if (!parse_target(plan.target, &target, error)) {
        return out;
    }
    static_cast<VariantFacts &>(out) = facts_of(p, plan, target);
    if (!compares && (plan.frame->schedule_version() == 0 || !plan.autoscheduler.empty())) {
        *error = "the frame plain and Halide's autoschedulers are only for comparisons, "
                 "expected another frame and no autoscheduler";
        return out;
    }
    out.symbol = symbol;
    out.object_path = object_path;
    try {
        const CompilerWarnings warnings;
        const Lowering lowering;
        const Halide::Target full = kernel_target(target, p).with_feature(Halide::Target::NoRuntime);
        const Halide::Module made = kernel_generator(p, plan, full)->build_module(symbol);
        Halide::Module module = after_device_passes(made, lowering.statement(), machine_of(target));
        std::map<Halide::OutputFileType, std::string> files = {{Halide::OutputFileType::object, object_path}};
        const std::string stem = object_path.substr(0, object_path.rfind('.'));
        for (const std::string &extra : extra_outputs) {
            if (extra == "stmt") {
                files[Halide::OutputFileType::stmt] = stem + ".stmt";
            } else if (extra == "assembly") {
                files[Halide::OutputFileType::assembly] = stem + ".s";
            }
        }
        module.compile(files);
        *error = warnings.sentence();
        read_lowered(lowering.statement(), &out);
    } catch (...) {
        *error = thrown_sentence();
    }
    return out;
}

std::string lower_variant(const Problem &p, const VariantPlan &plan, std::string *error) {
    Target target;
    if (!parse_target(plan.target, &target, error)) {
        return "";
    }
    try {
        const CompilerWarnings warnings;
        const Lowering lowering;
        const Halide::Target full = kernel_target(target, p).with_feature(Halide::Target::NoRuntime);
        const Halide::Module made = kernel_generator(p, plan, full)->build_module("polyhead_kernel");
        const Halide::Module module = after_device_passes(made, lowering.statement(), machine_of(target));
        *error = warnings.sentence();
        return lowered_text(lowering.statement(), module);
    } catch (...) {
        *error = thrown_sentence();
    }
    return "";
}

std::string compile_runtime(const std::string &path, const std::string &text) {
    Target target;
    std::string error;
    if (!parse_target(text, &target, &error)) {
        return error;
    }
    try {
        Halide::compile_standalone_runtime({{Halide::OutputFileType::object, path}}, halide_target(target));
    } catch (...) {
        return thrown_sentence();
    }
    return "";
}

std::string thrown_sentence() {
    std::string text = "the compiler failed with an unknown exception";
    try {
        throw;
    } catch (const Halide::Error &error) {
        text = error.what();
    } catch (const std::exception &exception) {
        text = exception.what();
    } catch (...) {
        return text;
    }
    std::replace(text.begin(), text.end(), '\n', ' ');
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
}

} // namespace polyhead::gen
