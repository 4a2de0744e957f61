// Kernels and forced variants as subjects of checks.
#include "subject.h"

#include <cstdio>
#include <memory>

#include "call_tensors.h"
#include "mirror.h"
#include "problems.h"

namespace polyhead::test {

KernelSubject::KernelSubject(const polyhead_kernel &kernel, uint64_t seed, bool separate_weights, polyhead_device *device, Home home)
    : kernel_(kernel), weights_(kernel.problem, seed, separate_weights), device_(device), home_(home) {
    const bool has_weights = !is_sdpa(kernel.problem);
    if (has_weights) {
        memory_ = GuardedBuffer((polyhead_weights_bytes(&kernel_) + 63) / 64 * 64, Place::at_end); // begins at a multiple of 64
        pack_status_ = polyhead_pack(&kernel_, &weights_.tensors(), memory_.data(), &packed_);
        memory_.make_read_only();
        if (pack_status_.code == POLYHEAD_OK && home != Home::host) {
            pack_status_ = polyhead_weights_to_device(device, &packed_, &on_device_);
        }
    }
    subject_.name = std::string(kernel.name) + (kernel.num_variants == 1 ? std::string(" variant ") + kernel.variants[0].name : "");
    subject_.problem = kernel.problem;
    subject_.weights = weights_.reference();
    subject_.run = [this, has_weights](const polyhead_args &args) {
        polyhead_args with_weights = args;
        with_weights.weights = !has_weights ? nullptr : home_ == Home::host ? &packed_ : &on_device_;
        with_weights.device = device_;
        return home_ == Home::host ? polyhead_run(&kernel_, &with_weights) : run_on_device(with_weights);
    };
    if (device != nullptr) {
        subject_.name += home == Home::host     ? ", tensors on the host"
                         : home == Home::device ? ", tensors on the device"
                                                : ", keys on the device";
        subject_.set_threads = [](int) {}; // the device has its own: a call is only repeated
    }
}

KernelSubject::~KernelSubject() {
    polyhead_weights_free(&on_device_);
}

namespace {

// Whether a tensor of this name lives on the device when only some do: key, value and what goes with the keys.
bool goes_with_keys(const std::string &name) {
    return name == "key" || name == "value" || name == "kv_lengths" || name == "mask" || name == "positions_kv" || name == "rope_cos" ||
           name == "rope_sin";
}

// A tensor of the arguments and its copy on the device.
struct Copy {
    std::string name;
    std::unique_ptr<Mirror> mirror;
    bool output;
};

} // namespace

polyhead_status KernelSubject::run_on_device(polyhead_args args) const {
    std::vector<Copy> copies;
    std::vector<polyhead_tensor> expression_tensors(args.expression_tensors, args.expression_tensors + args.num_expression_tensors);
    polyhead_status status{};
    const auto copy = [&](const std::string &name, polyhead_tensor &tensor, bool output) {
        if (status.code == POLYHEAD_OK && (home_ == Home::device || (!output && goes_with_keys(name)))) {
            copies.push_back({name, std::make_unique<Mirror>(device_, tensor), output});
            status = copies.back().mirror->status();
            tensor = copies.back().mirror->view();
        }
    };
    for (const CallTensor &input : input_tensors) {
        copy(input.name, args.*input.tensor, false);
    }
    for (polyhead_tensor &tensor : expression_tensors) {
        copy("tensor of the expression", tensor, false);
    }
    for (const CallTensor &output : output_tensors) {
        copy(output.name, args.*output.tensor, true);
    }
    if (status.code != POLYHEAD_OK) {
        return status;
    }
    args.expression_tensors = expression_tensors.data();
    status = polyhead_run(&kernel_, &args);
    const polyhead_status finished = polyhead_synchronize(device_);
    if (status.code == POLYHEAD_OK) {
        status = finished;
    }
    for (const Copy &one : copies) {
        const std::string failure = one.output ? one.mirror->read_back() : one.mirror->find_change();
        if (!failure.empty()) {
            status.code = POLYHEAD_INTERNAL;
            std::snprintf(status.message, sizeof status.message, "%s: %s", one.name.c_str(), failure.c_str());
        }
    }
    return status;
}

std::vector<polyhead_kernel> forced_variants(const polyhead_kernel &kernel, Api api) {
    std::vector<polyhead_kernel> forced;
    for (int32_t i = 0; i < kernel.num_variants; i++) {
        if (kernel.variants[i].api == static_cast<int32_t>(api) && (kernel.variants[i].cpu_features & ~polyhead_cpu_features()) == 0) {
            polyhead_kernel one = kernel;
            one.variants = &kernel.variants[i];
            one.num_variants = 1;
            forced.push_back(one);
        }
    }
    return forced;
}

Shape fitting(Shape shape, const polyhead_kernel &forced) {
    if (forced.variants[0].alignment > 0) {
        for (Layout *layout : {&shape.query, &shape.key, &shape.value}) {
            *layout = *layout == Layout::bhsd_padded ? Layout::bhsd : *layout == Layout::bshd_padded ? Layout::bshd : *layout;
        }
    }
    return shape;
}

bool serves(const polyhead_kernel &kernel, int64_t seq_len_q) {
    const polyhead_variant &variant = kernel.variants[0];
    return seq_len_q >= variant.min_seq_len_q && (variant.max_seq_len_q == 0 || seq_len_q <= variant.max_seq_len_q);
}

} // namespace polyhead::test
