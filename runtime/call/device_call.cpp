// One call on a device: host tensors are packed and copied there by Halide's runtime, device tensors go into the call as they are,
// results come back. In every case, also after an error, the device memory of the call is freed.
#include "device_call.h"

#include <algorithm>
#include <cstdio>

#include "../kernel_interface.h"
#include "../memory/memory.h"
#include "../rules/tensor_rules.h"
#include "../status.h"
#include "call.h"
#include "call_in_parts.h"
#include "call_tensors.h"
#include "kernel_error.h"
#include "launch_limits.h"
#include "part_of_call.h"
#include "staging.h"

namespace polyhead::runtime {
namespace {

// Host tensors that one copy cannot move, in packed form.
class Staging {
public:
    // Of a copy of the arguments, which it changes.
    Staging(const KernelTable &kernel, polyhead_args *args) noexcept : kernel_(kernel), args_(args) {
        std::copy_n(args->expression_tensors, kernel.num_declarations, expression_tensors_);
        args->expression_tensors = expression_tensors_;
    }
    ~Staging() {
        for (int i = 0; i < count_; ++i) {
            give_memory(packed_[i].data);
        }
    }
    Staging(const Staging &) = delete;
    Staging &operator=(const Staging &) = delete;

    // Puts packed tensors into the arguments; those that are read with their elements.
    bool pack(polyhead_status *status) noexcept {
        for (const TensorRow &row : kernel_.tensors & ~host_rows) {
            const bool result = row.place == Place::result;
            if (!pack_one(&(args_->*row.tensor), !result || row.updated, result, status)) {
                return false;
            }
        }
        for (int32_t i = 0; i < kernel_.num_declarations; ++i) {
            if (!pack_one(&expression_tensors_[i], true, false, status)) {
                return false;
            }
        }
        return true;
    }

    // Copies packed outputs to the caller's tensors.
    void unpack() const noexcept {
        for (int i = 0; i < count_; ++i) {
            if (output_[i]) {
                copy_elements(packed_[i], original_[i]);
            }
        }
    }

private:
    bool pack_one(polyhead_tensor *tensor, bool input, bool output, polyhead_status *status) noexcept {
        if (absent(*tensor) || tensor->device) {
            return true;
        }
        polyhead_tensor packed = staged_layout(*tensor);
        if (same_layout(packed, *tensor)) {
            return true;
        }
        packed.offset = 0;
        packed.data = take_memory(staged_bytes(packed));
        if (!packed.data) {
            return refuse(status, POLYHEAD_OUT_OF_MEMORY, "%zu bytes to pack a tensor for the device could not be allocated",
                          staged_bytes(packed));
        }
        if (input) {
            copy_elements(*tensor, packed);
        }
        original_[count_] = *tensor;
        output_[count_] = output;
        *tensor = packed_[count_++] = packed;
        return true;
    }

    const KernelTable &kernel_;
    polyhead_args *args_;
    polyhead_tensor expression_tensors_[most_expression_tensors];
    polyhead_tensor original_[Call::most_device_buffers], packed_[Call::most_device_buffers];
    bool output_[Call::most_device_buffers];
    int count_ = 0;
};

// The buffers of a call while it runs: device memory behind those whose tensors lie there, copies behind the others.
class PlacedBuffers {
public:
    // user_context is what the functions of the device are called with.
    PlacedBuffers(Call *call, polyhead_device *device, void *user_context) noexcept
        : call_(call), device_(device), user_context_(user_context) {}
    ~PlacedBuffers() { release(false); }
    PlacedBuffers(const PlacedBuffers &) = delete;
    PlacedBuffers &operator=(const PlacedBuffers &) = delete;

    bool place(polyhead_status *status) noexcept {
        for (; placed_ < call_->num_buffers(); ++placed_) {
            const int i = placed_;
            attached_[i] = false;
            if (call_->on_device(i)) {
                if (!device_->attach(call_->range(i), &call_->buffer(i), &attachments_[i], status)) {
                    return false;
                }
                attached_[i] = true;
                call_->buffer(i).set_device_dirty(!call_->range(i).output);
            } else if (call_->neutral(i) && device_->attach_element(*call_->neutral(i), &call_->buffer(i), &attachments_[i])) {
                attached_[i] = true;
            } else {
                on_host_ = true;
                call_->buffer(i).set_host_dirty(!call_->range(i).output || call_->range(i).input);
            }
        }
        return true;
    }

    // 0, or the code of what failed. When anything lies on the host, everything is done afterwards.
    int bring_back() noexcept {
        for (int i = 0; i < placed_; ++i) {
            KernelBuffer &buffer = call_->buffer(i);
            if (attached_[i] || !call_->range(i).output || !buffer.device_dirty()) {
                continue;
            }
            if (const int result = device_->bring_back(user_context_, &buffer)) {
                return result;
            }
        }
        return 0;
    }

    // Takes the memory from behind the buffers; ran: the kernel was started, and what it writes is wanted.
    void release(bool ran) noexcept {
        for (; placed_ > 0; --placed_) {
            KernelBuffer &buffer = call_->buffer(placed_ - 1);
            if (attached_[placed_ - 1]) {
                device_->detach(&buffer, &attachments_[placed_ - 1], ran);
            } else if (buffer.device_interface) {
                device_->free_copy(user_context_, &buffer);
            }
        }
    }
    bool any_on_host() const noexcept { return on_host_; }

private:
    Call *call_;
    polyhead_device *device_;
    void *user_context_;
    Attachment attachments_[Call::most_device_buffers];
    bool attached_[Call::most_device_buffers];
    int placed_ = 0;
    bool on_host_ = false;
};

polyhead_status launch(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args,
                       const CallShape &shape) noexcept {
    polyhead_status status = success();
    polyhead_args placed = args;
    Staging staging(kernel, &placed);
    if (!staging.pack(&status)) {
        return status;
    }
    CallContext context(args.device);
    context.entered = true;
    Call &call = *Call::make(__builtin_alloca(Call::bytes_of(kernel)), kernel, placed, shape, &context);
    PlacedBuffers buffers(&call, args.device, &context);
    if (!buffers.place(&status) || (buffers.any_on_host() && !args.device->may_wait(&status))) {
        return status;
    }
    int result = call.run(variant);
    if (result == 0) {
        result = buffers.bring_back();
    }
    buffers.release(result == 0);
    if (!buffers.any_on_host()) {
        args.device->flush();
    } else {
        status = args.device->synchronize();
    }
    if (result != 0) {
        kernel_failure(kernel.name, result, context, &status);
    } else if (status.code == POLYHEAD_OK) {
        staging.unpack();
    }
    return status;
}

// A launch of so many rows at a time. Apart, so that other calls have no arguments of parts on their stack.
[[gnu::noinline]] polyhead_status launch_parts(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args,
                                               const CallShape &shape, int64_t rows, int64_t most) noexcept {
    polyhead_status status = success();
    for (int64_t first = 0; first < rows && status.code == POLYHEAD_OK; first += most) {
        const int64_t count = std::min(most, rows - first);
        Part rows_of_part;
        rows_of_part.first = first;
        rows_of_part.count = count;
        PartOfCall part(kernel, args, rows_of_part);
        CallShape of_part = shape;
        (attends(kernel.problem) ? of_part.batch : of_part.seq_len_q) = count;
        status = launch(kernel, variant, part.args(), of_part);
    }
    return status;
}

} // namespace

polyhead_status run_on_device(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args,
                              const CallShape &shape) noexcept {
    polyhead_status status = success();
    if (!check_launch(kernel, variant, args, shape, &status)) {
        return status;
    }
    const bool linear = !attends(kernel.problem);
    const Fit fit = fit_of(kernel.problem, variant, args, shape);
    const int64_t rows = linear ? shape.seq_len_q : shape.batch,
                  most = std::min(fit.rows, rows_of_launch(kernel, variant, *args.device, shape));
    if (rows <= most) {
        return launch(kernel, variant, args, shape);
    }
    char limit[sizeof args.device->name + 16];
    std::snprintf(limit, sizeof limit, "of device %s", args.device->name);
    if (!check_divisible(kernel, rows, most, limit, &status)) {
        return status;
    }
    return launch_parts(kernel, variant, args, shape, rows, most);
}

} // namespace polyhead::runtime
