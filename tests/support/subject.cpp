// Kernels and forced variants as subjects of checks.
#include "subject.h"

#include <cstdio>
#include <utility>

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

polyhead_status KernelSubject::run_on_device(polyhead_args args) const {
    Mirror key(device_, args.key), value(device_, args.value), lengths(device_, args.kv_lengths);
    const polyhead_tensor absent{};
    const bool all = home_ == Home::device;
    Mirror query(device_, all ? args.query : absent), out(device_, all ? args.out : absent), lse(device_, all ? args.lse : absent);
    for (const Mirror *mirror : {&key, &value, &lengths, &query, &out, &lse}) {
        if (mirror->status().code != POLYHEAD_OK) {
            return mirror->status();
        }
    }
    args.key = key.view();
    args.value = value.view();
    args.kv_lengths = lengths.view();
    if (all) {
        args.query = query.view();
        args.out = out.view();
        args.lse = lse.view();
    }
    polyhead_status status = polyhead_run(&kernel_, &args);
    const polyhead_status finished = polyhead_synchronize(device_);
    if (status.code == POLYHEAD_OK) {
        status = finished;
    }
    for (auto [name, mirror] :
         {std::pair("out", &out), std::pair("lse", &lse), std::pair("query", &query), std::pair("key", &key), std::pair("value", &value)}) {
        const bool output = mirror == &out || mirror == &lse;
        const std::string failure = output ? mirror->read_back() : mirror->find_change();
        if (!failure.empty()) {
            status.code = POLYHEAD_INTERNAL;
            std::snprintf(status.message, sizeof status.message, "%s: %s", name, failure.c_str());
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
