// Kernels and forced variants as subjects of checks.
#include "subject.h"

#include <cstdio>

#include "../../contract/problem.h"
#include "not_run.h"
#include "problems.h"

namespace polyhead::test {

KernelSubject::KernelSubject(const polyhead_kernel &kernel, uint64_t seed, bool separate_weights, polyhead_device *device, Home home)
    : kernel_(kernel), weights_(kernel.problem, seed, separate_weights), device_(device), home_(home) {
    if (!is_sdpa(kernel.problem)) {
        memory_ = GuardedBuffer((polyhead_weights_bytes(&kernel_) + 63) / 64 * 64, Place::at_end); // begins at a multiple of 64
        pack_status_ = polyhead_pack(&kernel_, &weights_.tensors(), memory_.data(), &packed_);
        memory_.make_read_only();
        if (pack_status_.code == POLYHEAD_OK && home != Home::host) {
            pack_status_ = polyhead_weights_to_device(device, &packed_, &on_device_);
        }
    }
    subject_.name = std::string(kernel.name) + (kernel.num_variants == 1 ? std::string(" variant ") + kernel.variants[0].name : "");
    subject_.problem = call_problem(kernel);
    subject_.weights = weights_.reference();
    subject_.run = [this](const polyhead_args &args) {
        const polyhead_args call = prepared(args);
        return home_ == Home::host ? polyhead_run(&kernel_, &call) : run_on_device(call);
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

polyhead_args KernelSubject::prepared(polyhead_args args) const {
    args.weights = is_sdpa(kernel_.problem) ? nullptr : home_ == Home::host ? &packed_ : &on_device_;
    args.device = device_;
    return args;
}

polyhead_status KernelSubject::run_on_device(const polyhead_args &args) const {
    DeviceCall call(device_, home_, args);
    if (call.status().code != POLYHEAD_OK) {
        return call.status();
    }
    polyhead_status status = polyhead_run(&kernel_, &call.args());
    const polyhead_status finished = polyhead_synchronize(device_);
    if (status.code == POLYHEAD_OK) {
        status = finished;
    }
    const std::string failure = call.read_back();
    if (!failure.empty()) {
        status.code = POLYHEAD_INTERNAL;
        std::snprintf(status.message, sizeof status.message, "%s", failure.c_str());
    }
    return status;
}

std::vector<polyhead_kernel> forced_variants(const polyhead_kernel &kernel, Api api, const Device *device) {
    std::vector<polyhead_kernel> forced;
    for (int32_t i = 0; i < kernel.num_variants; i++) {
        const polyhead_variant &variant = kernel.variants[i];
        if (variant.api != static_cast<int32_t>(api)) {
            continue;
        }
        const uint64_t missing = variant.cpu_features & ~polyhead_cpu_features();
        if (missing != 0) {
            char names[256];
            polyhead_cpu_feature_names(missing, names, sizeof names);
            note_not_run(std::string("kernel ") + kernel.name + " variant " + variant.name, std::string("needs ") + names);
            continue;
        }
        polyhead_kernel one = kernel;
        one.variants = &variant;
        one.num_variants = 1;
        if (device && !Kernel(one).supported(device)) {
            note_not_run(std::string("kernel ") + kernel.name + " variant " + variant.name, "needs another device");
            continue;
        }
        note_run();
        forced.push_back(one);
    }
    return forced;
}

Shape fitting(Shape shape, const polyhead_kernel &forced) {
    if (forced.variants[0].alignment > 0) {
        Layout *const out = contract::writes_pairs(forced.problem) ? &shape.out : &shape.query;
        for (Layout *layout : {&shape.query, &shape.key, &shape.value, out}) {
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
