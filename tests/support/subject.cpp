// Kernels and forced variants as subjects of checks.
#include "subject.h"

#include "problems.h"

namespace polyhead::test {

KernelSubject::KernelSubject(const polyhead_kernel &kernel, uint64_t seed, bool separate_weights)
    : kernel_(kernel), weights_(kernel.problem, seed, separate_weights) {
    if (!is_sdpa(kernel.problem)) {
        memory_ = GuardedBuffer(polyhead_weights_bytes(&kernel_), Place::at_end);
        pack_status_ = polyhead_pack(&kernel_, &weights_.tensors(), memory_.data(), &packed_);
        memory_.make_read_only();
    }
    subject_.name = std::string(kernel.name) + (kernel.num_variants == 1 ? std::string(" variant ") + kernel.variants[0].name : "");
    subject_.problem = kernel.problem;
    subject_.weights = weights_.reference();
    subject_.run = [this](const polyhead_args &args) {
        polyhead_args with_weights = args;
        with_weights.weights = is_sdpa(kernel_.problem) ? nullptr : &packed_;
        return polyhead_run(&kernel_, &with_weights);
    };
}

std::vector<polyhead_kernel> forced_variants(const polyhead_kernel &kernel) {
    std::vector<polyhead_kernel> forced;
    for (int32_t i = 0; i < kernel.num_variants; i++) {
        if ((kernel.variants[i].cpu_features & ~polyhead_cpu_features()) == 0) {
            polyhead_kernel one = kernel;
            one.variants = &kernel.variants[i];
            one.num_variants = 1;
            forced.push_back(one);
        }
    }
    return forced;
}

bool serves(const polyhead_kernel &kernel, int64_t seq_len_q) {
    const polyhead_variant &variant = kernel.variants[0];
    return seq_len_q >= variant.min_seq_len_q && (variant.max_seq_len_q == 0 || seq_len_q <= variant.max_seq_len_q);
}

} // namespace polyhead::test
