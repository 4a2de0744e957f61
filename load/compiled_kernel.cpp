// Plans a problem and has its kernel loaded.
#include "compiled_kernel.h"

#include "../tools/compile_process.h"
#include "kernel.h"

namespace polyhead::load {

CompiledKernel::CompiledKernel(const Problem &given, const std::string &compiler, const CompiledKernelOptions &options)
    : name_(options.name), expression_(given.expression ? given.expression : ""), kernel_(polyhead_kernel{}) {
    tools::set_compiler_program(compiler);
    KernelRequest request;
    request.problem = given;
    request.problem.expression = expression_.empty() ? given.expression : expression_.c_str(); // the caller's text may go away
    request.name = options.name;
    request.tiling = options.tiling;
    request.tuning = {options.tuned, options.use_records};
    request.compares = true;
    error_ = gen::complete(&request.problem);
    error_ = error_.empty() ? gen::read_targets(options.target, true, request.problem, &request.targets) : error_;
    error_ = error_.empty() ? tools::read_limits(&request.limits) : error_;
    if (error_.empty()) {
        request.plan.variants = gen::plan_variants(request.problem, request.targets, options.tiling, &error_, request.tuning);
    }
    if (error_.empty()) {
        Failure failure;
        loaded_ = LoadedKernel::make(request, &failure);
        error_ = failure.sentence;
    }
    const polyhead_kernel none{POLYHEAD_SIZES, request.problem, name_.c_str(), nullptr, nullptr, 0, 0, 0, 0};
    kernel_ = Kernel(loaded_ ? loaded_->table() : none);
}

} // namespace polyhead::load
