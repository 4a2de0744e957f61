// A call whose form was checked before: what polyhead_plan is.
#ifndef POLYHEAD_RUNTIME_PLANNED_CALL_H
#define POLYHEAD_RUNTIME_PLANNED_CALL_H

#include <cstdint>

#include <polyhead/c_api.h>

#include "../rules/validate.h"
#include "call.h"
#include "cpu_call.h"
#include "kernel_table.h"

// What a checked call has in common with all calls of its form.
struct polyhead_plan {
    using Resources = polyhead::runtime::Resources;
    static constexpr uint64_t ours = 0x70686561645f706c; // "phead_pl"

    // Of checked arguments.
    polyhead_plan(const polyhead::runtime::KernelTable &kernel, const polyhead_args &args,
                  const polyhead::runtime::CallShape &shape) noexcept;
    polyhead_plan(const polyhead_plan &) = delete;
    polyhead_plan &operator=(const polyhead_plan &) = delete;
    ~polyhead_plan() { mark_ = 0; }

    // Whether it is a plan for this kernel.
    bool check_made_for(const polyhead_kernel *table, polyhead_status *status) const noexcept;
    // Of the same form, and what may change from call to call is right.
    bool check(const polyhead_args &args, const Resources &resources, polyhead_status *status) const noexcept;
    const polyhead::runtime::KernelTable &kernel() const noexcept { return kernel_; }
    const polyhead::runtime::CallShape &shape() const noexcept { return shape_; }

    // True of a checked call that differs from the one of the plan in addresses alone: one call of one variant on the CPU, whose keys are
    // not counted by a tensor.
    bool serves(const polyhead_args &args) const noexcept;
    polyhead_status run(const polyhead_args &args, const Resources &resources) const noexcept;

private:
    bool check_form(const polyhead_args &args, polyhead_status *status) const noexcept;

    uint64_t mark_ = ours;
    const polyhead::runtime::KernelTable kernel_;
    polyhead_problem problem_; // with the heads of the call
    polyhead_args form_;
    polyhead_weights weights_{};
    polyhead_tensor expression_tensors_[polyhead::runtime::most_expression_tensors];
    polyhead_tensor expression_gradients_[polyhead::runtime::most_expression_tensors];
    polyhead::runtime::CallShape shape_;
    const polyhead_variant *variant_ = nullptr;
    polyhead::runtime::CpuBytes bytes_;
    // Of form_, whose addresses stand for those of a call.
    alignas(16) char room_[polyhead::runtime::Call::most_bytes()];
    const polyhead::runtime::Call *planned_ = nullptr;
};

#endif
