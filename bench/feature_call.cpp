// A case of the bench of features: compiled, filled, checked, run.
#include "feature_call.h"

#include "../tests/support/call_tensors.h"
#include "../tests/support/check.h"
#include "../tests/support/problems.h"
#include "in_process.h"
#include "in_process_runtime.h"

namespace bench {
namespace {

// Kernels in use by the line that generates them. softmax_scale needs no kernel of its own.
std::shared_ptr<polyhead::InProcessKernel> kernel_for(const polyhead::Problem &problem) {
    share_runtime();
    static std::map<std::string, std::weak_ptr<polyhead::InProcessKernel>> known;
    std::weak_ptr<polyhead::InProcessKernel> &entry = known[polyhead::test::generate_line(problem)];
    std::shared_ptr<polyhead::InProcessKernel> kernel = entry.lock();
    if (!kernel)
        entry = kernel = std::make_shared<polyhead::InProcessKernel>(problem, polyhead::InProcessOptions{"host", "frame=query_lanes"});
    return kernel;
}

} // namespace

FeatureCall::FeatureCall(const FeatureCase &feature_case)
    : case_(feature_case), kernel_(kernel_for(case_.problem())), inputs_(case_.problem(), case_.shape()) {}

std::string FeatureCall::check() const {
    if (!kernel_->error().empty())
        return kernel_->error();
    const polyhead::test::KernelSubject subject(kernel_->kernel(), 1);
    return polyhead::test::check_answer(subject.subject(), case_.shape(), nullptr, 2e7);
}

void FeatureCall::run() const {
    (void)polyhead_run(&kernel_->kernel(), &inputs_.args()); // checked; the same call cannot be refused later
}

double FeatureCall::written_bytes() const {
    return polyhead::test::tensor_bytes(inputs_.args().scores) + polyhead::test::tensor_bytes(inputs_.args().weights_mean);
}

} // namespace bench
