// Compiles a problem into this process and dresses it as a Kernel.
#include "in_process.h"

#include <exception>

#include "../generators/compile.h"
#include "../runtime/weight_layout.h"

namespace polyhead {

InProcessKernel::InProcessKernel(const Problem &given, const InProcessOptions &options) : name_(options.name), kernel_(polyhead_kernel{}) {
    Problem problem = given;
    try { // Halide reports what it cannot compile by throwing
        error_ = gen::complete(&problem);
        const auto plans =
            error_.empty() ? gen::plan_variants(problem, {options.target}, options.tiling, &error_) : std::vector<gen::VariantPlan>();
        for (const gen::VariantPlan &plan : plans) {
            const gen::InProcessVariant compiled = gen::compile_in_process(problem, plan, &error_);
            if (!error_.empty()) {
                break;
            }
            texts_.push_back(std::make_unique<Texts>(Texts{options.name + "_" + std::to_string(variants_.size()), plan.target,
                                                           "frame=" + plan.frame + " " + plan.tiling.to_string()}));
            contexts_.push_back(compiled.context);
            const Texts &texts = *texts_.back();
            variants_.push_back({texts.name.c_str(), texts.target.c_str(), texts.tiling.c_str(), nullptr, compiled.call,
                                 compiled.context.get(), compiled.cpu_features, compiled.api, compiled.capability, compiled.alignment,
                                 plan.min_seq_len_q, plan.max_seq_len_q, compiled.scratch_per_thread, compiled.scratch_per_split,
                                 compiled.split_len, runtime::weight_layout_id(problem), POLYHEAD_ABI_VERSION});
        }
    } catch (const std::exception &exception) {
        error_ = exception.what();
    }
    if (!error_.empty()) {
        variants_.clear();
    }
    kernel_ = Kernel(polyhead_kernel{name_.c_str(), problem, variants_.data(), static_cast<int32_t>(variants_.size())});
}

} // namespace polyhead
