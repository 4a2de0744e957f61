// A case of the bench of features: compiled, filled, checked, run.
#include "feature_call.h"

#include <cmath>
#include <map>

#include "../instruments/calls/call_tensors.h"
#include "../instruments/calls/compiled_kernel.h"
#include "../instruments/calls/problems.h"
#include "../instruments/reference/check_answer.h"
#include "../instruments/reference/visibility.h"

namespace bench {
namespace {

// Kernels in use by the line that generates them. softmax_scale needs no kernel of its own.
std::shared_ptr<polyhead::load::CompiledKernel> kernel_for(const polyhead::Problem &problem) {
    static std::map<std::string, std::weak_ptr<polyhead::load::CompiledKernel>> known;
    std::weak_ptr<polyhead::load::CompiledKernel> &entry = known[polyhead::test::generate_line(problem)];
    std::shared_ptr<polyhead::load::CompiledKernel> kernel = entry.lock();
    if (!kernel)
        entry = kernel =
            std::make_shared<polyhead::test::CompiledKernel>(problem, polyhead::load::CompiledKernelOptions{"host", "frame=query_lanes"});
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

std::vector<roof::Block> FeatureCall::seen_pairs() const {
    std::vector<roof::Block> blocks;
    const polyhead_args &args = inputs_.args();
    const int64_t rows = case_.shape().seq_len_q, keys = case_.shape().seq_len_kv;
    for (const polyhead_tensor *tensor : {&args.mask, &args.score_bias}) {
        if (tensor->rank < 2 || tensor->shape[tensor->rank - 2] != rows || tensor->shape[tensor->rank - 1] != keys)
            continue;
        const auto size = static_cast<int64_t>(polyhead::test::dtype_bytes(tensor->dtype));
        const int64_t all_rows = static_cast<int64_t>(polyhead::test::tensor_bytes(*tensor)) / size / keys;
        for (int64_t row = 0; row < all_rows; row++) { // of one batch row
            const polyhead::test::KeyRange seen = polyhead::test::key_range(case_.problem(), args, 0, row % rows);
            if (seen.count() > 0)
                blocks.push_back(
                    {static_cast<const char *>(tensor->data) + (row * keys + seen.begin) * size, static_cast<size_t>(seen.count() * size)});
        }
    }
    return blocks;
}

PlainOfCheckout::PlainOfCheckout(const std::string &library, const FeatureCall &ours, int threads)
    : library_(library.c_str()), args_(ours.args()),
      out_(static_cast<size_t>(args_.out.shape[1] * args_.out.shape[2] * args_.out.shape[3])) {
    library_.get(set_threads_, "plain_set_threads");
    library_.get(run_, "plain_run");
    if (library_.found())
        set_threads_(threads);
}

std::string PlainOfCheckout::check() const {
    constexpr float most = 1e-5F; // both are that close to float64
    if (!library_.found())
        return "the library of the other checkout cannot be opened";
    if (refused())
        return "the plain kernel of the other checkout refuses the call";
    const auto *ours = static_cast<const float *>(args_.out.data);
    for (size_t i = 0; i < out_.size(); i++)
        if (!(std::fabs(out_[i] - ours[i]) <= most))
            return "out[" + std::to_string(i) + "] is " + std::to_string(out_[i]) + " in the other checkout, here " +
                   std::to_string(ours[i]);
    return "";
}

void PlainOfCheckout::run() const { // checked; the same call cannot be refused later
    (void)refused();
}

bool PlainOfCheckout::refused() const {
    const int64_t *const shape = args_.out.shape;
    return run_(args_.query.data, args_.key.data, args_.value.data, out_.data(), shape[1], shape[2], shape[3]) != 0;
}

} // namespace bench
