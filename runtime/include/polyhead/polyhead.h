// polyhead: attention kernels generated for one problem and one machine. The one header that users include.
//
//     #include <polyhead/polyhead.h>
//     #include <minilm_layer.h>              // written by `polyhead generate` or polyhead_add_kernel()
//     polyhead::Weights weights;
//     polyhead::Status status = minilm_layer.pack(tensors, &weights);
//     polyhead::MhaArgs args;
//     args.input = polyhead::view(x, {batch, seq_len, 384});
//     args.weights = &weights;
//     args.out = polyhead::view(y, {batch, seq_len, 384});
//     status = minilm_layer.run(args);
//     if (!status.ok()) log(status.message());
//
// No function prints or aborts. Only the functions that return std::string may throw (std::bad_alloc). Strides are in elements.
#ifndef POLYHEAD_POLYHEAD_H
#define POLYHEAD_POLYHEAD_H

#include <cstdint>
#include <string>

#include <polyhead/arguments.h>
#include <polyhead/backward_arguments.h>
#include <polyhead/c_api.h>
#include <polyhead/device.h>
#include <polyhead/half.h>
#include <polyhead/plan.h>
#include <polyhead/tensor.h>
#include <polyhead/weights.h>
#include <polyhead/workspace.h>

namespace polyhead {

using Problem = polyhead_problem;
using Variant = polyhead_variant;

// A generated kernel: stateless, constant-initialised, safe to call from many threads.
// NAME.h defines `inline constexpr polyhead::Kernel NAME`.
class Kernel : public polyhead_kernel {
public:
    constexpr explicit Kernel(const polyhead_kernel &table) noexcept : polyhead_kernel(table) {}

    // Runs the first variant that this machine and these lengths allow. Unless the status is ok(), no output was written.
    // Args: SdpaArgs, MhaArgs, LinearArgs, or one of backward_arguments.h, here and below.
    template <class Args> Status run(const Args &args) const noexcept { return run(c_args(args)); }
    Status run(const polyhead_args &args) const noexcept { return Status(polyhead_run(this, &args)); }

    // Checks these arguments, and keeps what calls of the same form need not check again. The kernel must outlive the plan.
    template <class Args> Status plan(const Args &args, Plan *plan) const noexcept { return this->plan(c_args(args), plan); }
    Status plan(const polyhead_args &args, Plan *plan) const noexcept {
        Plan made; // replaces the caller's only when all went well
        const Status status(polyhead_make_plan(this, &args, plan ? &made.raw_ : nullptr));
        if (status.ok()) {
            *plan = std::move(made);
        }
        return status;
    }

    // Packs nn.Linear weights, of the storage type or f32, for this kernel. The sources may be freed afterwards.
    Status pack(const WeightTensors &tensors, Weights *weights) const noexcept;
    size_t weights_bytes() const noexcept { return polyhead_weights_bytes(this); }
    // Packs into the caller's memory (64-byte aligned, weights_bytes() long).
    Status pack_into(const WeightTensors &tensors, void *memory, polyhead_weights *packed, const Workspace &workspace = {}) const noexcept {
        const polyhead_workspace raw = workspace.raw();
        return Status(polyhead_pack_in(&raw, this, &tensors, memory, packed));
    }

    // Bytes that a call with these arguments takes, which its scratch memory must have; -1 when they are refused.
    template <class Args> int64_t scratch_bytes(const Args &args) const noexcept { return scratch_bytes(c_args(args)); }
    int64_t scratch_bytes(const polyhead_args &args) const noexcept;
    // Which variant would run, and why the ones before it would not. May throw std::bad_alloc.
    template <class Args> std::string explain(const Args &args) const { return explain(c_args(args)); }
    std::string explain(const polyhead_args &args) const;
    // True when at least one variant can run on this machine's CPU, or on the device.
    bool supported(const Device *device = nullptr) const noexcept;
};

// The kernel of the set that computes this problem, or null. A kernel of a fixed length takes only this length, one of a free length any.
const Kernel *find_kernel(const Kernel *const *set, size_t count, const Problem &problem) noexcept;
// Why find_kernel() chooses this kernel, or the `polyhead generate` line that would add one.
std::string explain(const Kernel *const *set, size_t count, const Problem &problem);

inline void set_num_threads(int threads) noexcept {
    polyhead_set_num_threads(threads);
}
inline int num_threads() noexcept {
    return polyhead_num_threads();
}
// Microseconds that an idle helper thread looks for the next call before it sleeps; below 0: the default (see c_api.h).
inline void set_wait(int microseconds) noexcept {
    polyhead_set_wait(microseconds);
}
inline int wait() noexcept {
    return polyhead_wait();
}

} // namespace polyhead
#endif
