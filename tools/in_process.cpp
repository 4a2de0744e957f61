// Compiles a problem into this process and makes a Kernel of it.
#include "in_process.h"

#include "../compile/compile.h"
#include "../contract/weight_layout.h"
#include "../plan/language/expression.h"

namespace polyhead {

namespace {

// The tensors of the problem's text; names belong to the expression.
std::vector<polyhead_declaration> declarations_of(const gen::Expression &expression) {
    std::vector<polyhead_declaration> declarations;
    for (const gen::ExpressionTensor &t : expression.tensors()) {
        declarations.push_back({t.name.c_str(), t.dtype, t.rank, {t.extents[0], t.extents[1], t.extents[2], t.extents[3]}});
    }
    return declarations;
}

} // namespace

InProcessKernel::InProcessKernel(const Problem &given, const InProcessOptions &options) : name_(options.name), kernel_(polyhead_kernel{}) {
    Problem problem = given;
    if (given.expression && given.expression[0]) {
        expression_ = given.expression; // the caller's text may go away
        problem.expression = expression_.c_str();
    }
    try { // Halide reports what it cannot compile by throwing
        error_ = gen::complete(&problem);
        const auto plans =
            error_.empty() ? gen::plan_variants(problem, {options.target}, options.tiling, &error_, {options.tuned, options.use_records})
                           : std::vector<gen::VariantPlan>();
        for (const gen::VariantPlan &plan : plans) {
            const gen::InProcessVariant compiled = gen::compile_in_process(problem, plan, runtime::kernel_calls(), &error_);
            if (!error_.empty()) {
                break;
            }
            texts_.push_back(
                std::make_unique<Texts>(Texts{options.name + "_" + std::to_string(variants_.size()), plan.target, plan.text()}));
            contexts_.push_back(compiled.context);
            const Texts &texts = *texts_.back();
            polyhead_variant variant{};
            variant.name = texts.name.c_str();
            variant.target = texts.target.c_str();
            variant.tiling = texts.tiling.c_str();
            variant.call = compiled.call;
            variant.context = compiled.context.get();
            contract::require(compiled, &variant);
            variant.min_seq_len_q = plan.min_seq_len_q;
            variant.max_seq_len_q = plan.max_seq_len_q;
            variant.scratch = compiled.scratch;
            variant.weight_layout = contract::weight_layout_id(problem);
            variant.abi = POLYHEAD_ABI_VERSION;
            variants_.push_back(variant);
        }
    } catch (...) {
        error_ = gen::thrown_sentence();
    }
    uint32_t facts = 0;
    if (!error_.empty()) {
        variants_.clear();
    } else if (!expression_.empty()) {
        const auto expression = std::make_shared<gen::Expression>();
        error_ = gen::Expression::parse(expression_, "expression", expression.get());
        declarations_ = declarations_of(*expression);
        facts = expression->facts();
        parsed_ = expression;
    }
    kernel_ = Kernel(polyhead_kernel{POLYHEAD_SIZES, problem, name_.c_str(), variants_.data(), declarations_.data(),
                                     static_cast<int32_t>(variants_.size()), static_cast<int32_t>(declarations_.size()), facts, 0});
}

} // namespace polyhead
